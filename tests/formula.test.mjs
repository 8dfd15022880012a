// The arithmetic of pages/formula.mjs, in node's own runner (tests/test_pages.py starts it): numbers by hand.
import assert from "node:assert/strict";
import test from "node:test";
import { acceptance, expected, speedup, stretched, timeline, worth } from "../pages/formula.mjs";

const RUN = { about: { most: 5 }, spec: [           // four drafts, two of them accepted; then room for one
  { depth: 4, rows: 5, tokens: [1, 2, 3], accepted: 2, tested: 3 },
  { depth: 1, rows: 2, tokens: [4], accepted: 0, tested: 1 }] };

test("a round costs its drafts and one pass, and the lane is as long as its rounds", () => {
  assert.deepEqual(timeline(RUN, .25, 2), [         // passes over 5 and 2 rows: 2, and 1 + 1 / 4
    { begins: 0, drafted: 1, ends: 3 }, { begins: 3, drafted: 3.25, ends: 4.5 }]);
  assert.equal(speedup(RUN, .25, 2), 4 / 4.5);
  assert.deepEqual(acceptance(RUN), [2, 4]);
});

test("the expected tokens are those of theorem 3.8", () => {
  assert.equal(expected(.5, 3), 1 + .5 + .25 + .125);
  assert.equal(expected(0, 4), 1);
});

test("a pass costs what the machine measured for its rows, and moves with v without a jump", () => {
  const shape = [1, 1.1, 1.5, 1.6, 2], costs = v => shape.map((_, i) => stretched(shape, i + 1, 5, v));
  assert.deepEqual(costs(2).map(x => x.toFixed(6)), shape.map(x => x.toFixed(6)));
  costs(2.01).forEach((x, i) => assert.ok(x >= costs(2)[i] && x - costs(2)[i] < .0101));
  assert.equal(stretched([1, 1, 1], 2, 3, 2), 1.5);     // of a machine that knows no rows: in between
});

test("the round that is opened first rejects a whole word, above temperature 0", () => {
  const draft = (token, p) => ({ token, p }), names = { 1: " it", 2: " for", 3: " me", 4: "ing" };
  const round = (one, two) => ({ accepted: 1, drafts: [draft(1, .5), draft(one, .5), draft(two, .5)], names,
    tests: [{ z: .1 }, { z: .4 }], text: [" it", " and"] });
  const value = (r, temperature = .8) => worth({ of: { settings: { temperature }, spec: [r] }, r, i: 0 });
  assert.ok(value(round(2, 3)) > value(round(4, 3)) && value(round(4, 3)) > 0);
  assert.equal(value(round(2, 3), 0), 0);
  assert.equal(value({ ...round(2, 3), accepted: 3 }), 0);
});
