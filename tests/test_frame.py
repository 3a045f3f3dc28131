"""The frame: pins are exact, the weights are the ones the loader checks, the commands exist."""

import re
from pathlib import Path

from mha.checkpoint import PACKAGE

ROOT = Path(__file__).parent.parent


def lines(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_every_requirement_is_pinned_once():
    pins = [line for line in lines("requirements.txt") if not line.startswith("-")]
    pins += lines("constraints.txt")
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    names = [re.sub(r"[-_.]+", "-", pin.split("==")[0].lower()) for pin in pins]
    assert len(names) == len(set(names))


def test_the_weights_are_those_the_loader_expects():
    assert PACKAGE in lines("requirements.txt")


def test_commands_that_the_texts_name_exist():
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / name).read_text(), re.MULTILINE))
        assert named <= known, name
    assert {"book", "test"} <= set(re.findall(r"^make ([a-z]+)", "\n".join(lines(".ci/run")), re.M))
