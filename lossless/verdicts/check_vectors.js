// Reproduces vectors.json in another language, from vectors.md and the papers alone:
//     node check_vectors.js [vectors.json]          exit status 0, or 1 and the first vector that differs
// A rule asks `chance` for a coin or for a draw.  `listed` answers with given uniforms.  `exact` runs the
// rule once for each branch, and returns the exact distribution.
"use strict";
const vectors = JSON.parse(require("fs").readFileSync(process.argv[2] || `${__dirname}/vectors.json`, "utf8"));
const sum = a => a.reduce((s, x) => s + x, 0);
const plus = (q, p, w = 1) => q.map((x, i) => Math.max(w * x - p[i], 0));           // (w q - p)_+
const norm = (a, s = sum(a)) => s > 0 ? a.map(x => x / s) : a;
const left = (q, p) => sum(plus(q, p)) > 0 ? plus(q, p) : q;                        // nothing left: p = q

// Chance -------------------------------------------------------------------------------------------------
const first = (weights, u) => weights.findIndex(w => (u -= w) < 0);
const listed = u => ({ coin: c => u.shift() < c, draw: weights => first(weights, u.shift() * sum(weights)) });
function exact(run) {                                       // run(chance) -> outcome;  {outcome: probability}
  const found = {}, open = [[]];
  while (open.length) {
    const path = open.pop();
    let depth = 0, probability = 1;
    const fork = chances => {                               // the first time: take one, leave the others open
      if (depth === path.length) {
        const [one, ...others] = chances.map((_, i) => i).filter(i => chances[i] > 1e-15);
        others.forEach(i => open.push([...path, i]));
        path.push(one);
      }
      probability *= chances[path[depth]];
      return path[depth++];
    };
    const coin = c => !fork([Math.min(c, 1), 1 - Math.min(c, 1)]);
    const outcome = run({ coin, draw: weights => fork(norm(weights)) });
    found[outcome] = (found[outcome] || 0) + probability;
  }
  return found;
}

// The rules.  Result: [kept, next], or of a node [which child or -1, token] ---------------------------------
function algorithm2(q, p, drafts, chance) {
  for (let j = 0; j < drafts.length; j++)
    if (!chance.coin(q[j][drafts[j]] / p[j][drafts[j]])) return [j, chance.draw(left(q[j], p[j]))];
  return [drafts.length, chance.draw(q[drafts.length])];
}
function block(q, p, drafts, chance) {
  const after = [...p, q[0].map(() => 0)];                  // p = 0 after the last draft
  let P = 1, kept = 0, rest = plus(q[0], after[0]);
  drafts.forEach((x, j) => {
    P = Math.min(P * q[j][x] / p[j][x], 1);
    const more = plus(q[j + 1], after[j + 1], P), z = sum(more);
    if (chance.coin(z > 0 ? z / (z + 1 - P) : 0)) { kept = j + 1; rest = more; }
  });
  return [kept, chance.draw(sum(rest) > 0 ? rest : q[kept])];
}
function kSeq(q, p, drafts, chance) {
  const k = drafts.length, beta = r => sum(p.map((x, i) => Math.min(x, q[i] / r)));
  let low = 1, high = k;
  for (let i = 0; i < 30 && k > 1; i++) {
    const r = (low + high) / 2;
    if (1 - (1 - beta(r)) ** k <= r * beta(r)) high = r; else low = r;
  }
  for (let i = 0; i < k; i++) if (chance.coin(q[drafts[i]] / (p[drafts[i]] * high))) return [i, drafts[i]];
  const b = Math.min(beta(high), 1), share = b > 0 ? (1 - (1 - b) ** k) / b : 0;
  return [-1, chance.draw(q.map((x, i) => Math.max(x - Math.min(p[i], x / high) * share, 0)))];
}
function sequoia(q, p, drafts, chance) {
  for (let i = 0; i < drafts.length; i++) {
    if (chance.coin(q[drafts[i]] / p[drafts[i]])) return [i, drafts[i]];
    q = norm(left(q, p));
    p = norm(p.map((x, token) => token === drafts[i] ? 0 : x));
  }
  return [-1, chance.draw(q)];
}
const certain = (token, row) => row.map((_, i) => +(i === token));
const masses = (q, p, drafts, chance) => algorithm2(q, drafts.map(x => certain(x, q[0])), drafts, chance);
const lines = { "algorithm 2": algorithm2, block, "point masses": masses }, nodes = { "k-seq": kSeq, sequoia };
const judge = (v, drafts, chance) => (lines[v.rule] || nodes[v.rule])(v.q, v.p, drafts, chance);

// The vectors ---------------------------------------------------------------------------------------------
const fail = (kind, i, found) => { throw new Error(`${kind} ${i} differs: found ${JSON.stringify(found)}`); };
vectors.steps.forEach((v, i) => {
  const found = judge(v, v.drafts, listed([...v.uniforms]));
  if (found.join() !== [v.kept, v.next].join()) fail("step", i, found);
});
function drawn(v, chance) {                                 // the drafts or children of a round
  if (v.drafts || lines[v.rule]) return v.drafts || v.p.map(p => chance.draw(p));
  const children = [], p = [...v.p];
  for (let n = 0; n < v.k && sum(p) > 0; n++) {
    children.push(chance.draw(p));
    if (v.rule === "sequoia") p[children[n]] = 0;
  }
  return children;
}
vectors.distributions.forEach((v, i) => {
  const found = exact(chance => {
    const drafts = drawn(v, chance), [kept, next] = judge(v, drafts, chance);
    return [kept, ...lines[v.rule] ? drafts.slice(0, kept) : [], next];
  });
  const wanted = Object.fromEntries(v.outcomes.map(o => [o.slice(0, -1).join(), o[o.length - 1]]));
  for (const o of new Set([...Object.keys(found), ...Object.keys(wanted)]))
    if (Math.abs((found[o] || 0) - (wanted[o] || 0)) > 1e-9) fail("distribution", i, [o, found[o]]);
});
console.log(`${vectors.steps.length} steps and ${vectors.distributions.length} distributions are reproduced`);
