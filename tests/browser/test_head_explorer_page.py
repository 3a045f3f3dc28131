"""HeadExplorer on the static page: its numbers against float64, and moved by keyboard alone."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch
from visits import STATE

PAGE = "book/index"
SCALES = ("sqrt", "none", "inverse", "temperature")
TEMPERATURE = 1.6  # log10 of the divisor: about 39.8

# Set each control as a reader's act would, and read what the page then says in full precision.
READ = """async ([choices, trained, scales, temperature, sentences]) => {
  const root = document.querySelector('.mha-explorer');
  const find = (role) => root.querySelector(`[data-role=${role}]`);
  const drawn = () => Promise.resolve();       // acts in one go are drawn once, in a microtask
  const act = async (node, value) => {
    node.value = value;
    for (const type of ['input', 'change']) node.dispatchEvent(new Event(type, {bubbles: true}));
    await drawn();
  };
  const row = () => [...root.querySelectorAll('.mha-row li')].map(e => +e.dataset.weight);
  const found = [];
  for (const [sentence, tokens] of sentences.entries()) {
    await act(find('sentence'), sentence);
    for (const causal of [false, true]) {
      if (find('causal').checked !== causal) { find('causal').click(); await drawn(); }
      for (const scale of scales) {
        root.querySelector(`[data-role=scale][value=${scale}]`).click();
        await drawn();
        if (scale === 'temperature') await act(find('temperature'), temperature);
        for (const [choice, n_heads] of choices.entries()) {
          await act(find('heads'), choice);
          const heads = [...root.querySelectorAll('.mha-head')];
          const combination = {sentence, causal, scale, n_heads};
          found.push({...combination, entropy: heads.map(e => +e.dataset.entropy)});
          // every cell of the map where the page starts, one cell of every other combination
          const full = sentence === 0 && !causal && scale === 'sqrt' && n_heads === trained;
          const some = (count) => full ? [...Array(count).keys()] : [found.length % count];
          for (const h of some(n_heads)) {
            heads[h].click();
            await drawn();
            for (const query of some(tokens)) {
              await act(find('query'), query);
              const read = root.querySelector('.mha-readout').dataset;
              found.push({...combination, head: h, query, row: row(), key: +find('key').value,
                          weight: +read.weight, logit: +read.logit, score: +read.score,
                          sum: +find('row-sum').dataset.sum});
            }
          }
        }
      }
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stored(html) -> dict:
    """The state of the widget as the page holds it, q and k of each sentence in float64."""
    page = (html / f"{PAGE}.html").read_bytes()
    scripts = (json.loads(re.sub(rb"<.*?>", b"", text)) for text in STATE.findall(page))
    entries = {key: entry for script in scripts for key, entry in script["state"].items()}
    entry = next(e for e in entries.values() if e["model_name"] == "AnyModel")
    state = entry["state"]
    for buffer in entry["buffers"]:
        _, sentence, name = buffer["path"]
        values = np.frombuffer(base64.b64decode(buffer["data"]), dtype="<f2")
        rows = torch.tensor(values.astype(np.float64)).reshape(-1, state["d_model"])  # T D
        state["_data"][sentence][name] = rows
    return state


def expected(stored, *, sentence, causal, scale, n_heads) -> dict[str, torch.Tensor]:
    """Return scores, logits and weights, each (H, T, T), computed by torch in float64."""
    data = stored["_data"][sentence]
    d_head = stored["d_model"] // n_heads
    q, k = (torch.stack(data[name].split(d_head, dim=-1)) for name in ("q", "k"))  # H T d
    scores = q @ k.mT
    # the page rounds a temperature to three digits
    divisor = {
        "sqrt": d_head**0.5,
        "none": 1.0,
        "inverse": float(d_head),
        "temperature": float(f"{10**TEMPERATURE:.3g}"),
    }[scale]
    logits = scores / divisor
    if causal:
        later = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        logits = logits.masked_fill(later, -torch.inf)
    return {"score": scores, "logit": logits, "weight": logits.softmax(-1)}


def test_numbers_equal_float64_for_every_choice(site, stored):
    tokens = [len(data["tokens"]) for data in stored["_data"]]
    tab = site.open(PAGE).page
    found = tab.evaluate(
        READ, [stored["choices"], stored["trained_heads"], SCALES, TEMPERATURE, tokens]
    )
    choices = len(tokens) * 2 * len(SCALES) * len(stored["choices"])
    assert sum("entropy" in one for one in found) == choices
    assert sum("row" in one for one in found) == choices - 1 + stored["trained_heads"] * tokens[0]
    names = ("sentence", "causal", "scale", "n_heads")
    known = {}
    for one in found:
        combination = {name: one[name] for name in names}
        if "entropy" in one:
            known = expected(stored, **combination)
            bits = -torch.xlogy(known["weight"], known["weight"]).sum(-1).mean(-1) / np.log(2)
            torch.testing.assert_close(
                torch.tensor(one["entropy"], dtype=torch.float64),
                bits,
                rtol=0,
                atol=1e-6,
                msg=lambda text, c=combination: f"entropy at {c}: {text}",
            )
            continue
        at = (one["head"], one["query"])
        row = torch.tensor(one["row"], dtype=torch.float64)
        torch.testing.assert_close(
            row,
            known["weight"][at],
            rtol=0,
            atol=1e-6,
            msg=lambda text, c=combination, at=at: f"row {at} at {c}: {text}",
        )
        assert one["sum"] == pytest.approx(1, abs=1e-9)
        for name in ("score", "logit", "weight"):
            value = known[name][at][one["key"]].item()
            if np.isfinite(value):
                assert one[name] == pytest.approx(value, abs=1e-6, rel=1e-9), (name, combination)


def test_everything_moves_by_keyboard(site, stored):
    visit = site.open(PAGE)
    tab = visit.page
    explorer = tab.locator(".mha-explorer").first

    def part(role):
        return explorer.locator(f"[data-role={role}]").first

    shown = stored["choices"].index(stored["n_heads"])
    part("heads").focus()
    tab.keyboard.press("ArrowLeft")
    fewer = stored["choices"][shown - 1]
    assert explorer.locator(".mha-head").count() == fewer
    assert str(fewer) in part("heads-out").inner_text()

    part("causal").focus()
    tab.keyboard.press("Space")
    assert part("causal").is_checked()

    explorer.locator("[data-role=scale]:checked").focus()
    tab.keyboard.press("ArrowRight")
    assert explorer.locator("[data-role=scale]:checked").get_attribute("value") == "none"

    explorer.locator(".mha-head[aria-pressed=true]").focus()
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    assert explorer.locator(".mha-head[aria-pressed=true]").get_attribute("data-head") == "1"

    explorer.locator(".mha-map").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    moved = (int(part("query").input_value()), int(part("key").input_value()))
    last = len(stored["_data"][stored["sentence"]]["tokens"]) - 1
    assert moved == (min(stored["query"] + 1, last), min(stored["key"] + 1, last))

    known = expected(stored, sentence=stored["sentence"], causal=True, scale="none", n_heads=fewer)
    weight = float(explorer.locator(".mha-readout").get_attribute("data-weight"))
    assert weight == pytest.approx(known["weight"][1][moved].item(), abs=1e-6)
    assert visit.problems() == []


def test_page_keys_do_not_leave_the_widget(site):
    """The arrow keys of the widget must not scroll the page, nor turn it."""
    tab = site.open(PAGE).page
    tab.locator(".mha-explorer .mha-map").first.focus()
    height, address = tab.evaluate("scrollY"), tab.url
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("End")
    tab.wait_for_timeout(300)
    assert abs(tab.evaluate("scrollY") - height) < 10  # a key scrolls 40 pixels, or to the end
    assert tab.url == address


def test_widget_follows_the_theme(site):
    tab = site.open(PAGE, theme="dark").page
    assert tab.locator(".mha-explorer").first.get_attribute("data-mha-theme") == "dark"


def test_finding_the_head_is_noticed(site):
    tab = site.open(PAGE).page
    explorer = tab.locator(".mha-explorer")
    found = explorer.locator("[data-role=found]")

    def pick(head):
        explorer.locator(f".mha-head[data-head='{head}']").click()
        return found.inner_text()

    assert pick(2) == ""
    also = "Head 1 does it too: ‘the (2)’ gives ‘mat’ 0.412, the most of its row. One head gives it"
    assert pick(1) == f"{also} more."
    assert pick(8) == "✓ Found: ‘the (2)’ gives ‘mat’ 0.841."
    assert "entropy 1.33 of 3.00 bits" in explorer.locator(".mha-one .mha-title").inner_text()
    explorer.locator("[data-role=causal]").check()  # no longer the model as trained
    assert found.inner_text() == ""
    explorer.locator("[data-role=causal]").uncheck()
    explorer.locator("[data-role=heads]").focus()
    tab.keyboard.press("ArrowRight")  # 24 heads: another head 8
    assert pick(8) == ""
    for sentence, head, text in [
        (1, 4, "✓ Found: ‘she’ gives ‘actress’ 0.472."),
        (2, 0, "✓ Found: ‘phone’ gives ‘picked’ 0.374."),
        (3, 9, "✓ Found: ‘dog (1)’ gives ‘dog (2)’ 0.549."),
    ]:
        explorer.locator("[data-role=heads]").focus()
        tab.keyboard.press("End")
        tab.keyboard.press("ArrowLeft")  # 12 heads
        explorer.locator("[data-role=sentence]").select_option(str(sentence))
        assert found.inner_text() == ""  # the head was not picked for this sentence
        assert pick(head) == text


def test_a_task_is_marked_by_its_pair_of_words(site):
    tab = site.open(PAGE).page
    explorer = tab.locator(".mha-explorer")
    words = []
    for sentence in range(4):
        explorer.locator("[data-role=sentence]").select_option(str(sentence))
        words.append([
            explorer.locator(f"select[data-role={role}] option:checked").inner_text()
            for role in ("query", "key")
        ])
    assert words == [
        ["the (2)", "mat"], ["she", "actress"], ["phone", "picked"], ["dog (1)", "dog (2)"],
    ]
