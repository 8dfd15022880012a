// One round, opened: a stop for each line of the code.  `kind` says what is drawn there.
import { speedup, sum, worth } from "./formula.mjs";
import { $, STILL, b, bar, data, el, exact, many, number, part, quoted, seen, words } from "./dom.mjs";
import { SAID, chips, choose, dial, drafterOf, draw, finish, names, play, ruleOf, runs, s, shortened, step,
  use } from "./race.mjs";
const LINES = data["lines.json"];                       // how the lines begin that a stop is about

// The stops: j is the draft, n how many are accepted so far, t what was tested (pages/picture.py) ----------
const STOPS = {
  tried({ tests, nodes, accepted }) {                       // of a tree: the children of a node in turn
    let n = 0;
    return tests.flatMap((t, j) => {
      const stop = (kind, more) => ({ kind, j, n, t, ...more });
      if (t.x === null) return [stop("last", { own: true })];
      const show = stop("show"), out = nodes ? !t.passes : j >= accepted;
      n += !out;
      if (!out) return [show, stop("test"), stop("accept")];
      const more = nodes && nodes[t.node].parent === nodes[tests[j + 1]?.node]?.parent;
      const rejected = [show, stop("test", { out }), stop("left", { out, more })];
      return more ? rejected : [...rejected, stop("draw", { out, own: true })];
    });
  },
  block({ tests, accepted, own }) {
    let n = 0;
    const found = tests.slice(1).flatMap((t, j) => {
      const before = { kind: "weight", j, t, n };
      if (t.passes) n = j + 1;
      return [before, { kind: "coin", j, t, n }];
    });
    return own ? [...found, { kind: "block", n: accepted, t: tests[accepted], out: true, own: true }] : found;
  },
  lines({ steps, accepted: n }) {
    const drawn = steps.findIndex(one => one.facts.some(([name]) => name === "next_token"));
    return steps.map((one, i) => {
      const tested = steps.slice(0, i + 1).filter(other => other.test).length, own = i >= drawn;
      return { kind: "line", n: own ? n : Math.min(tested, n), out: own || tested > n, own, ...one };
    });
  },
  whole: ({ accepted }) => [{ kind: "whole", n: accepted, out: true, own: true }],
};
export let linked_to = null;                                   // the address names what was opened
export function openRound(of, i, go = false) {
  const r = of.spec[i], kind = r.steps?.length ? "lines" : r.tests ? of.about.picture : "whole";
  if (s.opened?.of !== of) list(of.about);
  s.opened = { of, i, r };
  s.stops = (STOPS[kind] ?? STOPS.tried)(r);
  s.at = 0;
  light();
  if (!go) return;
  play(false);                                          // in the address: of a run of one's own, no number
  linked_to = { run: of.recorded ? runs.indexOf(of) + 1 : "", round: i + 1 };
  dispatchEvent(new Event("opened"));
  $("round").scrollIntoView({ block: $("slot").children.length ? "nearest" : "start" });
  $("r-next").focus({ preventScroll: true });
}
export function openToken(i, j) {                       // in place: below the lanes, at the token's own test
  $("slot").append($("round"));
  openRound(s.run, i, true);
  const mine = s.stops.findIndex(one => j ? one.j === Number(j) && one.kind !== "show" : one.out);
  s.at = Math.max(0, j >= (s.opened.r.tests ?? []).length ? s.stops.findIndex(stop => stop.own) : mine);
  light();
}
const place = document.createComment("");              // where the round stands, if not below the lanes
$("round").before(place);
export const backToItsPlace = () => place.after($("round"));
function list({ sources, picture }) {                   // beside a picture: without comments
  $("source").hidden = !sources.length;
  $("source").replaceChildren(...sources.flatMap(({ name, file, lines, doc, differs }) => {
    const shown = lines.map(line => picture ? line.replace(/\s*# .*/, "") : line || " ");
    const items = shown.map((line, n) => el("li", differs?.includes(n) ? "differs" : "", line));
    items.forEach((item, n) => item.hidden = !shown[n] || doc && n >= doc[0] + !picture && n <= doc[1]);
    if (doc) items[doc[0]].textContent = "    \"\"\" .. \"\"\"";
    return [el("h3", "", `${file}: ${name}`), el("ol", "code", ...items)];
  }));
}

// The picture --------------------------------------------------------------------------------------------
const wordOf = id => id === null ? "the rest" : typeof id === "string" ? id : seen(names[id] ?? `#${id}`);
// rows: [[token, *its probability in each], ..].  If z, the sum of (q - p)_+, is given, this difference is
// drawn, hatched: "missing" beside p, "normal" divided by z.
export function bars(rows, kinds, { marked, drawn, z = 0, mode = "" } = {}) {
  const left = ([id, p, q]) => id === null ? rest : Math.max(q - p, 0) / z, normal = mode === "normal";
  const known = rows.filter(([id]) => id !== null), rest = z && 1 - sum(known, left);
  const most = Math.max(...known.flatMap(row => normal ? left(row) : row.slice(1))) || 1;
  const piece = (kind, from, to) => bar("bar " + kind, from / most, to / most);
  return el("div", "bars " + mode, ...rows.map(row => {
    const [id, ...shares] = row, real = id !== null, pair = el("div", "pair"), more = z && left(row);
    if (real) pair.append(...shares.map((x, i) => piece(kinds[i], 0, x)));
    if (real && more) pair.append(normal ? piece("left", 0, more) : piece("left", row[1], row[2]));
    const said = !mode ? shares.map((x, i) => (shares[1] >= 0 ? kinds[i] + " " : "") + number(x)).join(" ")
      : more < 5e-4 && id !== drawn ? "" : normal ? number(more) : "+" + number(z * more);
    const is = real && id === drawn ? " drawn" : real && id === marked ? " drafted" : "";
    return el("div", "one" + is, el("span", "word", wordOf(id)), pair,
      el("span", "nums", said + (is === " drawn" ? is : "")));
  }));
}
function needle({ r = -1, ratio }, name) {              // r against the probability of acceptance
  const [, cut, at] = $("needle").children;
  for (const [key, x] of [["--ratio", ratio], ["--r", r]]) $("needle").style.setProperty(key, 100 * x + "%");
  [cut.textContent, at.firstChild.textContent] = [`${name} = ${number(ratio)}`, `r = ${number(r)}`];
  cut.className = ratio > .5 ? "cut far" : "cut";
  at.hidden = r < 0;
}
function tree(nodes, status, parent = -1) {             // each node's children to its right
  const below = nodes.map((node, i) => [node, i]).filter(([node]) => node.parent === parent);
  return below.length ? el("ul", "tree", ...below.map(([{ token, q }, i]) => el("li", "",
    el(status(i) === "out" ? "del" : "span", "chip c-" + status(i), wordOf(token)),
    el("span", "nums", `q ${number(q)}`), tree(nodes, status, i)))) : "";
}
function statusIn({ nodes, tests }, { kind, j }) {      // of a node, at this stop
  return i => {
    if (!tests) return nodes[i].taken ? "accepted" : "open";
    const tried = tests.findIndex(t => t.node === i), here = tried === j;
    if (tried < 0 || tried > j) return "untried";
    if (here && /show/.test(kind)) return "check now";
    return (tests[tried].passes ? "accepted" : "out") + (here ? " now" : "");
  };
}

// The words ----------------------------------------------------------------------------------------------
const NAMES = {                                         // of the words, where a stop's kind is not enough
  show: (stop, { nodes }) => !nodes ? "show" : s.stops[s.at - 1]?.more ? "show sibling" : "show child",
  test: ({ out }) => out ? "rejected" : "accepted",
  accept: ({ j }, { nodes, drafts }) => nodes ? "child stays" : drafts[j + 1] ? "stays" : "last stays",
  left: ({ more }) => more ? "left, and a sibling" : "left",
  draw: ({ j }, { drafts }) => drafts?.[j + 1] ? "draw, and drafts" : "draw",
  last: (stop, { nodes, drafts }) => nodes ? "leaf" : drafts.length ? "last" : "no drafts",
  coin: ({ t }) => t.passes ? "coin passes" : "coin fails",
};
function wordsOf(stop, r, draft, of) {
  const { kind, j, t = stop.test, facts = [] } = stop, drafts = n => many(n, "draft"), { rules } = SAID;
  const word = quoted(names[t?.x] ?? ""), all = drafts((r.nodes ?? r.drafts).length);
  const values = { ...draft, ...t, n: String(j + 1), all, accepted: String(r.accepted), word: b(word),
    gone: b(word, "no"), own: b(quoted(r.text.at(-1)), "q-ink"), gives: drafterOf(of)[2],
    lacks: part("left", "what q still lacks", "q-ink"), before: r.tests?.[j]?.weight,
    first: drafts(j + 1), was: r.nodes?.[t?.node]?.q };
  const fill = name => SAID.stops[name].split(/[{}]/).map((text, i) => i % 2 === 0 ? text : /^[+-]/.test(text)
    ? b(text.slice(1), text[0] === "+" ? "yes" : "no") : typeof values[text] === "number"
      ? /^[pq]$/.test(text) ? exact(values[text]) : number(values[text]) : values[text]);
  const rule = rules[r.chosen ? "chosen" : ruleOf(of)] ?? rules.other;
  if (kind === "whole") return [...r.nodes ? fill("tree") : [], rule];
  if (kind === "line") return [...facts.map(fact), ...!t ? [] : fill(t.r < t.ratio ? "test" : "test fails")];
  return fill(NAMES[kind]?.(stop, r) ?? kind);
}
function fact([name, x]) {                              // what a name holds after its line
  const value = typeof x === "number" ? number(x) : typeof x === "string" ? x
    : (x.of > x.tokens.length ? ".. " : "") + x.tokens.map(wordOf).join(" ");
  return el("div", "small", b(name), " ", value);
}
const MODES = { left: "missing", coin: "missing", draw: "normal", last: "normal", block: "normal" };
function pictureOf({ kind, t, own, chart }, r) {
  const drawn = own && r.tokens.at(-1);
  if (t) return [bars(t.rows, ["p", "q"], { marked: t.x, z: t.z, mode: MODES[kind], drawn })];
  return chart ? [bars(chart.rows, chart.series, chart)] : [];
}
function lineOf({ kind, source = 0, line }, { about: { sources, picture } }) {     // [the source, its line]
  if (line !== undefined) return [source, line];
  const start = LINES[picture]?.[kind];
  const found = sources.map(({ lines }) => lines.findIndex(one => one.trim().startsWith(start)));
  return [Math.max(0, found.findIndex(nth => nth >= 0)), found.find(nth => nth >= 0)];
}
function paperOf(sources, source, nth) {                // if all but the editor's code is of speculative.py
  const line = sources[source]?.lines[nth]?.trim(), known = ["speculative.py", "<editor>"];
  return sources.every(({ file }) => known.includes(file))
    && LINES.paper.find(([, lines]) => lines.some(start => line?.startsWith(start)))?.[0] || "";
}
export function light() {
  const { of, i, r } = s.opened, stop = s.stops[s.at], { kind, j, n, out, own, t } = stop;
  const drafts = r.drafts ?? [];
  const test = stop.test ?? (/test|coin/.test(kind) ? t : kind === "weight" && { ratio: t.ratio });
  const row = t?.rows.find(([id]) => id === t.x), draft = drafts[j] ?? (row && { p: row[1], q: row[2] });
  $("letters").replaceChildren(...words`${part("q", "q", "q-ink")} is the large model's distribution, and
    ${part("p", "p", "p-ink")} is ${drafterOf(of)[1]}.
    ${of.settings.temperature ? "" : "At temperature 0, all p and q are 0 or 1."}`);
  $("picture").replaceChildren(...pictureOf(stop, r));
  $("nodes").replaceChildren(r.nodes ? tree(r.nodes, statusIn(r, stop)) : "");
  $("needle").hidden = !test && kind !== "show";
  $("needle").style.visibility = kind === "show" ? "hidden" : "";       // not before the question is asked
  if (test) needle(test, t?.weight === undefined ? "min(1, q / p)" : "h");
  const said = of.settings.prompt + of.spec.slice(0, i).flatMap(one => one.text).join("");
  const status = (one, m) => m < n ? "accepted" : out && (m === n || one.rejected) ? "out"
    : own ? "unread" : "open";
  $("before").replaceChildren(el("span", "soft", shortened(said).replaceAll("\n", " ")),
    ...drafts.flatMap((one, m) => chips(status(one, m) + (m === j ? " now" : ""), [names[one.token]])),
    ...r.nodes ? chips("accepted", r.text.slice(0, n)) : [],
    ...own && r.own ? chips("own", r.text.slice(r.accepted)) : []);
  $("words").className = out && !own ? "no" : /test|accept|last/.test(kind) ? "yes" : "";
  $("words").replaceChildren(...wordsOf(stop, r, draft, of));
  const [source, nth] = lineOf(stop, of), box = $("source");
  box.querySelectorAll(".lit").forEach(line => line.classList.remove("lit"));
  const lit = box.querySelectorAll("ol")[source]?.children[nth], top = lit?.offsetTop - box.offsetTop;
  lit?.classList.add("lit");
  if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 40)
    box.scrollTop = top - box.clientHeight / 2;
  $("paper").textContent = paperOf(of.about.sources, source, nth);
  const other = of === s.run ? "" : " (of another run)";
  $("place").textContent =
    `round ${i + 1} of ${of.spec.length}${other}, line ${s.at + 1} of ${s.stops.length}`;
  $("r-back").disabled = !i && !s.at;
  $("r-next").disabled = i + 1 === of.spec.length && s.at + 1 === s.stops.length;
}
function move(by) {                                     // after the last line comes the next round
  const { of, i } = s.opened;
  if (s.stops[s.at + by]) s.at += by;
  else if (of.spec[i + by]) {
    openRound(of, i + by);
    if (by < 0) s.at = s.stops.length - 1;
  }
  light();
}
$("r-back").onclick = () => move(-1);
$("r-next").onclick = () => move(1);

// Keys, and the round that is opened at first ------------------------------------------------------------
addEventListener("keydown", event => {
  const on = event.target, arrow = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey || on.closest("select, textarea, input, .code")) return;
  const racing = on === document.body || on.matches("section") || on.closest("#race");
  if (on.matches(".can") && [" ", "Enter"].includes(event.key)) on.click();
  else if (event.key === " " && racing && $("race").offsetHeight && !on.closest("button, a, .part")) {
    play(!s.playing);
    $("race").scrollIntoView({ block: "nearest" });
  } else if (arrow && s.opened && $("round").contains(on)) move(arrow);
  else if (arrow && $("race").getBoundingClientRect().bottom > 0) step(arrow);
  else return;
  event.preventDefault();
});
export const roundsOf = among => among.flatMap(of => of.spec.map((r, i) => ({ of, r, i })));
export const best = all => all.toSorted((a, b) => worth(b) - worth(a))[0];
export function openBest(among) {                              // a clear rejection, of whole words
  const found = best(roundsOf(among));
  $("round").hidden = !s.opened && !found;
  if (found) openRound(found.of, found.i);
}
export const isLine = one => one.about.picture !== "tree";
export function begin() {                                      // with a recording
  choose(s.run);
  const lines = runs.filter(isLine);
  openBest(lines.length ? lines : runs);
  if (STILL) { s.now = finish(); draw(); } else play(true);
}
Object.assign(globalThis, { $, data, runs, s, play, draw, choose, dial, use, finish, speedup, openRound });
