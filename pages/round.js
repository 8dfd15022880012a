// One round, opened: a stop for each line of the code.  `kind` says what is drawn there.
let opened = null, stops = [], at = 0;
const b = (word, kind = "") => el("b", kind, word);

// The stops ---------------------------------------------------------------------------------------------------
// j is the draft, n how many are accepted so far, t what was tested: pages/picture.py
const STOPS = {
  token: ({ tests, kept }) => tests.flatMap((t, j) => {
    const stop = (kind, n, more) => ({ kind, j, n, t, ...more });
    if (t.x === null) return [stop("last", j, { own: true })];
    return [stop("show", j), stop("test", j + (j < kept), { out: j === kept }), ...j < kept ? [stop("accept", j + 1)]
      : [stop("left", j, { out: true }), stop("draw", j, { out: true, own: true })]];
  }),
  block({ tests, kept, last }) {
    let n = 0;
    const found = tests.slice(1).flatMap((t, i) => {
      const stop = kind => ({ kind, j: i, n, t });
      const before = stop("weight"), passes = t.r < t.ratio;
      if (passes) n = i + 1;
      return [before, stop("coin"), ...passes ? [stop("prefix")] : []];
    });
    return last ? [...found, { kind: "block", n: kept, t: tests[kept], out: true, own: true }] : found;
  },
  tree: r => [{ kind: "tree", n: r.kept, own: true }],
  lines({ steps, kept, drafts }) {
    const drawn = steps.findLastIndex(one => one.draw);
    return steps.map((one, i) => {
      const tested = steps.slice(0, i + 1).filter(other => other.test).length, done = i >= drawn;
      return { kind: "line", n: done ? kept : Math.min(tested, kept), out: done || tested > kept, own: done, ...one };
    });
  },
};
function openRound(of, i, go = false) {
  const r = of.spec[i], kind = r.steps?.length ? "lines" : r.nodes ? "tree" : of.about.picture;
  if (opened?.of !== of) listing(of.about);
  opened = { of, i, r };
  stops = STOPS[kind](r);
  at = 0;
  const openable = runs.filter(one => one.spec.some(canOpen));
  $("which-round").replaceChildren(...openable.map(one => {
    const group = document.createElement("optgroup"), { prompt, temperature } = one.settings;
    group.label = `${one.recorded ? "" : "your run: "}${prompt.slice(0, 30)}…, temperature ${temperature}`;
    group.append(...one.spec.map((r, i) => new Option(`round ${i + 1}: ${r.kept} accepted`
      + (r.drafts?.[r.kept] ? `, ${quoted(names[r.drafts[r.kept].token])} not` : ""), `${runs.indexOf(one)} ${i}`)));
    return group;
  }));
  $("which-round").value = `${runs.indexOf(of)} ${i}`;
  light();
  if (!go) return;
  play(false);
  $("round").scrollIntoView({ behavior: STILL ? "auto" : "smooth" });
  $("r-next").focus({ preventScroll: true });
}
function listing({ sources }) {                         // the docstring is folded
  $("source").hidden = !sources.length;
  $("source").replaceChildren(...sources.flatMap(({ name, file, lines, doc, differs }) => {
    const items = lines.map((line, n) => el("li", differs?.includes(n) ? "differs" : "", line || " "));
    for (const n of items.keys()) items[n].hidden = doc && n > doc[0] && n <= doc[1];
    if (doc) items[doc[0]].append(" .. \"\"\"");
    return [el("h3", "", `${file}: ${name}`), el("ol", "code", ...items)];
  }));
}

// The picture -------------------------------------------------------------------------------------------------
const wordOf = id => id === null ? "all others" : seen(names[id] ?? `#${id}`);
function bars(rows, kinds, { marked = null, drawn = null, z = 0, mode = "" } = {}) {
  const left = ([, p, q]) => z ? Math.max(q - p, 0) / z : 0, scale = mode === "normal" ? left : null;
  const most = Math.max(...rows.flatMap(row => row[0] === null ? [] : scale ? [left(row)] : row.slice(1))) || 1;
  const wide = x => Math.min(100 * x / most, 100) + "%";
  const box = el("div", "bars " + mode, ...rows.map(row => {
    const [id, ...shares] = row, pair = el("div", "pair"), rest = id === null;
    for (const [i, kind] of kinds.entries()) if (!rest) {
      pair.append(el("div", "bar " + kind));
      pair.lastChild.style.width = wide(shares[i]);
    }
    if (z && !rest && left(row)) {
      const hatched = el("div", "bar left");
      [hatched.style.left, hatched.style.width] = scale ? ["0%", wide(left(row))] : [wide(row[1]), wide(row[2] - row[1])];
      pair.append(hatched);
    }
    const said = mode === "normal" ? number(left(row)) : mode === "missing" ? left(row) ? "+" + number(row[2] - row[1]) : ""
      : shares.map((x, i) => `${kinds.length > 1 ? kinds[i] + " " : ""}${number(x)}`).join(" ");
    return el("div", `one${id !== null && id === marked ? " drafted" : ""}${id !== null && id === drawn ? " drawn" : ""}`,
      el("span", "word", wordOf(id)), pair, el("span", "nums", rest && mode ? "" : said, id !== null && id === drawn ? " drawn" : ""));
  }));
  return box;
}
function needle({ r, ratio }, words) {                  // r against the probability of acceptance
  const part = (kind, x, ...more) => { const box = el("div", kind, ...more); box.style.left = 100 * x + "%"; return box; };
  const yes = el("div", "yes"), cut = el("span", "cut" + (ratio > .5 ? " far" : ""), `${words} = ${number(ratio)}`);
  yes.style.width = cut.style.left = 100 * ratio + "%";
  return [yes, cut, ...r === undefined ? [] : [part("r", r, el("span", "", `r = ${number(r)}`))]];
}
function tree({ nodes, last }) {                        // each node's children to its right
  const below = parent => el("ul", "", ...nodes.flatMap(({ token, q, taken }, i) => nodes[i].parent !== parent ? [] :
    [el("li", "", el("span", "chip c-" + (taken ? "accepted" : "open"), wordOf(token)), el("span", "nums", `q ${number(q)}`),
      nodes.some(other => other.parent === i) ? below(i) : "")]));
  const box = below(-1);
  box.className = "tree";
  return [box, last ? el("p", "", "then ", el("span", "chip c-own", wordOf(last.token))) : ""];
}

// The words ---------------------------------------------------------------------------------------------------
const verdict = yes => yes ? b("accepted.", "yes") : b("rejected.", "no");
const DELIVERED = " Pale: what accepted drafts already deliver, min(p, q). Hatched: what is missing, q − p. A replacement "
  + "is drawn from the hatched part, so both together are q: the text is not changed.";
const WORDS = {
  show: ({ j, t }, r, d) => [`Draft ${j + 1} is `, b(quoted(names[t.x])), `: the small model gives it p = ${number(d.p)}, `
    + `the large one q = ${number(d.q)}. With which probability should it be accepted?`],
  test: ({ t, out }, r, d) => [`r = ${number(t.r)} is ${out ? "not " : ""}less than min(1, q / p) = min(1, ${number(d.q)} / `
    + `${number(d.p)}) = ${number(t.ratio)}: `, verdict(!out),
    out ? " The small model says it more often than the large one does." : ""],
  accept: ({ j, t }, r) => [b(quoted(names[t.x])), " stays. ", j + 1 < r.drafts.length ? "On to the next draft."
    : "All drafts are accepted."],
  left: ({ t }) => [DELIVERED, ` It adds up to ${number(t.z)}, and a rejection happens exactly that often.`],
  draw: ({ j, t }, r) => [`Divided by its sum ${number(t.z)}, the hatched part is a distribution. One draw from it replaces `,
    b(quoted(names[t.x]), "no"), " by ", b(quoted(r.text.at(-1)), "yes"), j + 1 < r.drafts.length
      ? ". The drafts after the rejected one are not looked at: they continue another text." : "."],
  last: (_, r) => [`All ${many(r.drafts.length, "draft")} are accepted. The same pass has computed q after the last of them: a `,
    "draw from it gives ", b(quoted(r.text.at(-1)), "yes"), `. That is ${r.drafts.length} drafts + 1 from one pass.`],
  weight: ({ j, t }, r) => [`Block verification judges prefixes. The first ${many(j + 1, "draft")} together count with P = `,
    `min(1, P q / p) = min(1, ${number(r.tests[j].weight)} × ${number(r.drafts[j].q)} / ${number(r.drafts[j].p)}) = `,
    b(number(t.weight)), ". The bars are p and P q at the next place."],
  coin: ({ j, t }) => [`r = ${number(t.r)} is ${t.r < t.ratio ? "" : "not "}less than h = z / (z + 1 − P) = ${number(t.ratio)}, `
    + `where z = ${number(t.z)} is the hatched part: `, t.r < t.ratio ? b(`the first ${many(j + 1, "draft")} stay.`, "yes")
    : b("not by this coin", "no"), t.r < t.ratio ? "" : "; a later one may still accept them."],
  prefix: ({ j }) => [`The last coin that passes counts: so far ${many(j + 1, "draft")} accepted.`],
  block: (_, r) => [`${r.kept} of ${many(r.drafts.length, "draft")} accepted. The next token is drawn from the hatched part, `
    + "(P q − p)₊ divided by its sum: ", b(quoted(r.text.at(-1)), "yes"), "."],
  tree: (_, r) => [`${many(r.nodes.length, "draft")} in a tree, all checked in one pass. From the left, the children of a node are `
    + `tested in turn, each against what is then left of q; the first that passes is accepted (green). `,
    r.last ? `After ${many(r.kept, "accepted draft")} comes a token of the large model's own.` : ""],
  line: stop => lineWords(stop),
};
function light() {
  const { of, i, r } = opened, stop = stops[at], { kind, j, n, out, own, t } = stop, d = r.drafts?.[j];
  const mode = { left: "missing", draw: "normal", last: "normal", block: "normal", coin: "missing" }[kind] ?? "";
  $("picture").replaceChildren(...kind === "tree" ? tree(r) : kind === "line" ? linePicture(stop) : [bars(t.rows, ["p", "q"], {
    marked: t.x, z: t.z, mode, drawn: own ? r.tokens.at(-1) : null })]);
  const test = kind === "line" ? stop.test && { r: stop.test.u, ratio: stop.test.ratio }
    : kind === "show" || kind === "weight" ? { ratio: t.ratio } : kind === "test" || kind === "coin" ? t : null;
  $("needle").hidden = !test;
  $("needle").replaceChildren(...test ? needle(test, t?.weight === undefined ? "min(1, q / p)" : "h") : []);
  const said = of.settings.prompt + of.spec.slice(0, i).map(one => one.text.join("")).join("");
  $("before").replaceChildren(el("span", "soft", shortened(said).replaceAll("\n", " ")), ...(r.drafts ?? []).flatMap((one, m) =>
    chips((m < n ? "accepted" : out && (m === n || one.verdict === "rejected") ? "out" : own ? "unread" : "open")
      + (m === j ? " now" : ""), [names[one.token]])),
    ...r.nodes ? chips("accepted", r.text.slice(0, r.kept)) : [], ...own && r.last ? chips("own", r.text.slice(r.kept)) : []);
  $("words").className = out ? "no" : /test|accept|last|prefix/.test(kind) ? "yes" : "";
  $("words").replaceChildren(...WORDS[kind](stop, r, d));
  document.querySelectorAll("#source .lit").forEach(line => line.classList.remove("lit"));
  const source = of.about.sources[stop.source ?? 0], nth = stop.line ?? of.about.lines?.[kind], box = $("source");
  const line = box.querySelectorAll("ol")[stop.source ?? 0]?.children[nth];
  $("paper").textContent = of.about.steps?.[source?.paper[nth]] ?? "";
  $("paper").hidden = !$("paper").textContent;
  if (line) {
    line.classList.add("lit");
    const top = line.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 40) box.scrollTop = top - box.clientHeight / 2;
  }
  $("place").textContent = `round ${i + 1}, line ${at + 1} of ${stops.length}`;
  $("r-back").disabled = at === 0;
  $("r-next").disabled = at + 1 === stops.length;
}
function move(by) {
  at = Math.max(0, Math.min(stops.length - 1, at + by));
  light();
}
$("r-back").onclick = () => move(-1);
$("r-next").onclick = () => move(1);
$("which-round").onchange = () => {
  const [n, i] = $("which-round").value.split(" ").map(Number);
  openRound(runs[n], i);
};

// Any code, line by line: a rule that was edited, or the page of main.py --trace ----------------------------------
function lineWords({ facts, test, draw }) {
  const value = x => typeof x === "number" ? number(x) : x.tokens
    ? (x.of > x.tokens.length ? ".. " : "") + x.tokens.map(wordOf).join(" ") : x;
  const parts = facts.map(([name, x]) => el("div", "small", b(name), " ", value(x)));
  if (test) parts.push(`r = ${number(test.u)} is ${test.u < test.ratio ? "" : "not "}less than min(1, q / p) = min(1, `
    + `${number(test.q)} / ${number(test.p)}) = ${number(test.ratio)}`);
  if (draw) parts.push(draw.u === null ? `“${wordOf(draw.token)}” has all of the probability.`
    : `The random number ${number(draw.u)} falls into the share of “${wordOf(draw.token)}”, ${number(draw.start)} to `
      + `${number(draw.end)} (the shares lie side by side in the order of the vocabulary).`);
  return parts;
}
function linePicture({ chart, draw }) {
  if (!chart) return [];
  const kinds = chart.series.map(kind => kind === "q" || kind === "p" ? kind : "other");
  return [el("p", "small", ...chart.series.map((kind, i) => el("span", kinds[i] + "-ink", kind + " "))),
    bars(chart.rows, kinds, draw ? { drawn: chart.marked } : { marked: chart.marked })];
}

// Keys --------------------------------------------------------------------------------------------------------
function onRound() {                                    // do the arrows step the opened round, or the race?
  const box = $("round").getBoundingClientRect(), half = innerHeight / 2, inside = $("round").contains(document.activeElement);
  return inside && box.bottom > 0 && box.top < innerHeight || box.top < half && box.bottom > half;
}
addEventListener("keydown", event => {
  const on = event.target, arrow = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey || on.closest("select, textarea, input")) return;
  if (event.key === " " && !on.closest("button, a, summary")) play(!playing);
  else if (arrow && !on.closest("#source")) (opened && onRound() ? move : step)(arrow);
  else return;
  event.preventDefault();
});
addEventListener("click", event => {                    // after a mouse's click, Space is Play and Pause again
  if (event.detail) event.target.closest?.("#race button")?.blur();
});

// The first screen --------------------------------------------------------------------------------------------
function openBest() {                                   // a rejection that is easily seen
  const worth = ([, , { kept, drafts, tests }]) => kept && kept < 3 && tests?.[kept].z * drafts[kept]?.p || 0;
  const all = runs.filter(one => one.settings.temperature > 0).flatMap(one => one.spec.map((r, i) => [one, i, r]));
  const best = all.filter(([, , r]) => r.tests && r.kept < r.drafts.length).sort((a, b) => worth(b) - worth(a))[0]
    ?? runs.flatMap(one => one.spec.map((r, i) => [one, i, r])).find(([, , r]) => canOpen(r));
  $("round").hidden = !best;
  if (best) openRound(best[0], best[1]);
}
