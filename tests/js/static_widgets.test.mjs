// The page's stand-in for a Backbone model, taken out of the classic script that holds it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const errors = [];
const page = vm.createContext({
  atob,
  structuredClone,
  console: { error: (e) => errors.push(e), warn() {} },
});
vm.runInContext(source, page);
const { Model } = page.staticWidgets;

test("buffers are put back where the notebook took them out", () => {
  const model = new Model({
    state: { _data: [{ tokens: ["a"] }], n: 1 },
    buffers: [{ path: ["_data", 0, "q"], data: "ADwAwA==", encoding: "base64" }],
  });
  const view = model.get("_data")[0].q;
  assert.deepEqual([view.getUint16(0, true), view.getUint16(2, true)], [0x3c00, 0xc000]);
  assert.deepEqual([...model.get("_data")[0].tokens], ["a"]);
});

test("the stored state itself is not written to", () => {
  const entry = { state: { list: [{}] }, buffers: [{ path: ["list", 0, "x"], data: "AA==" }] };
  const model = new Model(entry);
  model.set("n", 2);
  assert.deepEqual(entry.state, { list: [{}] });
});

test("another buffer encoding is refused", () => {
  const entry = { state: {}, buffers: [{ path: ["x"], data: "00", encoding: "hex" }] };
  assert.throws(() => new Model(entry), /encoding hex is not base64/);
});

test("set tells every change first, then one change, and nothing when nothing changes", () => {
  const model = new Model({ state: { a: 1, b: 2 } });
  const heard = [];
  model.on("change:a change:b", (_, value) => heard.push(value));
  model.on("change", () => heard.push([model.get("a"), model.get("b")].join()));
  model.set({ a: 3, b: 4 });
  model.set("a", 3);
  model.save_changes();
  assert.deepEqual(heard, [3, 4, "3,4"]);
});

test("NaN set again is no change, and minus zero is one", () => {
  const model = new Model({ state: { a: NaN, b: 0 } });
  const heard = [];
  model.on("change:a change:b", (_, value) => heard.push(value));
  model.set("a", NaN);
  model.set("b", -0);
  assert.deepEqual(heard, [-0]);
});

test("who starts or stops listening meanwhile changes nothing for this event", () => {
  const model = new Model({ state: { a: 0 } });
  const heard = [];
  const late = () => heard.push("late");
  const second = () => heard.push("second");
  model.on("change:a", () => {
    model.on("change:a", late);
    model.off("change:a", second);
  });
  model.on("change:a", second);
  model.set("a", 1);
  assert.equal(heard.join(), "second");
  model.set("a", 2);
  assert.equal(heard.join(), "second,late");
});

test("off takes one listener, an event, or all of them", () => {
  const model = new Model({ state: { a: 0, b: 0 } });
  const heard = [];
  const [first, second] = [() => heard.push("first"), () => heard.push("second")];
  const hear = (names) => {
    heard.length = 0;
    names.forEach((name) => model.set(name, model.get(name) + 1));
    return heard.join();
  };
  model.on("change:a change:b", first);
  model.on("change:a", second);
  assert.equal(hear(["a", "b"]), "first,second,first");
  model.off("change:a", first);
  assert.equal(hear(["a", "b"]), "second,first");
  model.off(null, second);
  assert.equal(hear(["a", "b"]), "first");
  model.off("change:b");
  assert.equal(hear(["a", "b"]), "");
  model.on("change:a", second);
  model.off();
  assert.equal(hear(["a"]), "");
});

test("a listener that fails doesn't stop the next", () => {
  const model = new Model({ state: { a: 0 } });
  let heard = 0;
  model.on("change:a", () => {
    throw new Error("on purpose");
  });
  model.on("change:a", () => {
    heard += 1;
  });
  model.set("a", 1);
  assert.equal(heard, 1);
  assert.equal(errors.at(-1).message, "on purpose");
});
