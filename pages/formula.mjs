// The arithmetic of the race and of the curve, and how much a round shows.  No document: node can run it.
export const sum = (list, value) => list.reduce((total, item) => total + value(item), 0);
export const tokensOf = rounds => sum(rounds, r => r.tokens.length);
export const passCost = (rows, most, v) => 1 + (v - 1) * (rows - 1) / (most - 1);   // v: of `most`
export function timeline({ spec, about }, c, v) {       // when each round begins, has drafted, and ends
  let at = 0;
  return spec.map(({ depth, rows }) => {                // depth: passes of the small model
    const begins = at, drafted = begins + depth * c;
    return { begins, drafted, ends: at = drafted + passCost(rows, about.most, v) };
  });
}
export const speedup = (run, c, v) => tokensOf(run.spec) / timeline(run, c, v).at(-1).ends;
export const acceptance = ({ spec }) => ["accepted", "tested"].map(key => sum(spec, r => r[key]));
export const expected = (alpha, K) => sum([...Array(K + 1).keys()], i => alpha ** i);  // tokens a round
export function stretched(shape, rows, most, v) {       // a machine's cost by rows, made v at `most` of them
  const top = shape[most - 1] - 1;
  return top > .02 ? 1 + (v - 1) * ((shape[rows - 1] ?? 1) - 1) / top : passCost(rows, most, v);
}
export function worth({ of, r, i }) {                   // as an example, above temperature 0
  const { accepted, drafts, tests, text, nodes, names } = r;
  if (!of.settings.temperature || !tests) return 0;
  const siblings = tests.some((t, j) => t.passes === false && tests[j + 1]);     // one fails
  if (nodes) return siblings && accepted && Math.min(...nodes.map(({ taken, q }) => taken ? q : 1));
  if (accepted === drafts.length) return 0;
  const said = drafts.map(d => names[d.token]), whole = word => /^ [A-Za-z]{2,}$/.test(word);
  const after = [said[accepted + 1], of.spec[i + 1]?.text[0]].every(next => !/^\w/.test(next ?? ""));
  const shown = [...said.slice(0, accepted + 1), text[accepted]];
  const clear = after && shown.every(whole) && text[accepted] !== said[accepted + 1];
  return tests[accepted].z * drafts[accepted].p + clear + (clear && accepted > 0);
}
