// The race: two lanes on one clock.  All that is on the screen follows from `now`, in steps: passes of the
// large model over one token.  A run: { settings, about, alone, spec, recorded, over }, where alone and spec
// are rounds as pages/rounds.py describes them.

// The arithmetic: a round of k drafts costs k c + v(k) -----------------------------------------------------
const rowsOf = r => 1 + (r.nodes ?? r.drafts).length;   // of the large model's pass
const draftingOf = r => r.levels ?? r.drafts.length;    // passes of the small model; a tree: one a level
const tokensOf = rounds => sum(rounds, r => r.tokens.length);
const passCost = (rows, most, v) => 1 + (v - 1) * (rows - 1) / (most - 1);      // v is the cost of `most` rows
function timeline({ spec, about }, c, v) {              // when each round begins, has drafted, and ends
  let at = 0;
  return spec.map(r => {
    const begins = at, drafted = begins + draftingOf(r) * c;
    return { begins, drafted, ends: at = drafted + passCost(rowsOf(r), about.most, v) };
  });
}
const speedup = (run, c, v) => tokensOf(run.spec) / timeline(run, c, v).at(-1).ends;
function costOf(rows, measured) {                       // [[rows, cost], ..]; linear between two of them
  let i = measured.findIndex(([n]) => n >= rows);
  if (i < 1) i = i ? measured.length - 1 : 1;
  const [[a, from], [b, to]] = measured.slice(i - 1, i + 1);
  return from + (to - from) * (rows - a) / (b - a);
}
function acceptance(rounds) {                           // [accepted, tested]
  const tested = r => r.nodes ? r.kept + (r.last?.kind === "correction")
    : r.drafts.filter(d => ["accepted", "rejected"].includes(d.verdict)).length;
  return [sum(rounds, r => r.kept), sum(rounds, tested)];
}

// The state -------------------------------------------------------------------------------------------------
const PACE = 300, LANES = ["alone", "spec"], names = {};        // milliseconds a step; names: token: its text
const runs = data.runs.map(one => ({ ...one, recorded: true, over: true }));
runs.forEach(one => one.spec.forEach(r => Object.assign(names, r.names)));
let run = runs[0], preset = data.presets[0], c = 0, v = 1, now = 0, playing = false, before = 0, line = [];
let drawn = {};
const end = () => line.at(-1)?.ends ?? 0, finish = () => Math.max(run.alone.length, end());
const limit = () => run.over ? finish() : Math.min(run.alone.length, end());    // what has arrived
const passed = at => at <= now + 1e-9;
function state() {                                      // how many rounds are done, and what is drafted since
  const done = line.filter(r => passed(r.ends)).length, at = line[done], r = run.spec[done];
  const drafted = r && now > at.begins ? Math.floor((now - at.begins) / c + 1e-9 || 0) : 0;
  return { done, drafted: c ? drafted : Infinity, checking: Boolean(at) && now > at.begins && passed(at.drafted) };
}

// The lanes -------------------------------------------------------------------------------------------------
function shortened(prompt) {                            // its end, from the beginning of a word
  return prompt.length < 48 ? prompt : "… " + prompt.slice(prompt.indexOf(" ", prompt.length - 44) + 1);
}
function lane(name, ...parts) {
  $("text-" + name).replaceChildren(el("span", "soft", shortened(run.settings.prompt)), ...parts);
  $("text-" + name).scrollTop = 1e6;
}
function chips(kind, words, text = false) {             // the space before a word stays outside its chip
  const shown = word => word.replace(/^ (?=\S)/, "").replace(/^ $/, "·");
  return words.flatMap(word => [/^ \S/.test(word) ? " " : "\u200b",
    el("span", text ? "t-" + kind : "chip c-" + kind, text ? shown(word) : shown(word).replace(/\n/g, "↵")),
    ...!text && word.includes("\n") && /accepted|own/.test(kind) ? ["\n"] : []]);
}
const failed = r => (r.drafts ?? []).slice(r.kept);
const canOpen = r => Boolean(r?.tests ?? r?.steps ?? r?.nodes);
function roundIn(r, i, last) {                          // the last round shows what became of each draft
  const box = el("span", canOpen(r) ? "can" : "", ...chips("accepted", r.text.slice(0, r.kept), !last));
  if (last) box.append(...failed(r).flatMap(d => chips(d.verdict === "rejected" ? "out" : "unread", [names[d.token]])));
  box.append(...chips("own", r.text.slice(r.kept), !last));
  if (canOpen(r)) box.onclick = () => openRound(run, i, true);
  return box;
}
function draftsOf(r, n) {                               // on the screen before the pass is over
  return r.nodes ? [` ${r.nodes.length} drafts in a tree`] : r.drafts.slice(0, n).map(d => names[d.token]);
}
function draw() {
  now = Math.max(0, Math.min(now, limit()));
  const { done, drafted, checking } = state(), alone = Math.min(run.alone.length, Math.floor(now + 1e-9));
  const ended = { alone: run.over && passed(run.alone.length), spec: run.over && passed(end()) };
  const all = ended.alone && ended.spec, next = run.spec[done], shown = [done, drafted, checking, all].join();
  if (drawn.alone !== alone) lane("alone", run.alone.slice(0, alone).flatMap(r => r.text).join(""));
  if (drawn.spec !== shown) lane("spec",
    ...run.spec.slice(0, done).map((r, i) => roundIn(r, i, i === done - 1 && !all)),
    ...next && (drafted || checking) ? chips(checking ? "check" : "open", draftsOf(next, drafted)) : []);
  drawn = { alone, spec: shown };
  const last = { alone: run.alone.length, spec: end() }, first = last.spec < last.alone ? "spec" : "alone";
  const counts = { alone: [alone, alone], spec: [tokensOf(run.spec.slice(0, done)), done] };
  for (const name of LANES) {
    const [tokens, passes] = counts[name], at = Math.min(now, last[name]).toFixed(1) + " steps";
    const when = !ended[name] ? at : `${name === first ? "done first" : "done"}, after ${at}`;
    $("count-" + name).className = ended[name] && name === first ? "first" : "";
    $("count-" + name).replaceChildren(`${many(tokens, "token")}, ${many(passes, "pass", "es")}, `, el("b", "", when));
    for (const part of $("track-" + name).querySelectorAll(".head, .later"))
      part.style.left = 100 * Math.min(now, last[name]) / (finish() || 1) + "%";
  }
  $("play").textContent = playing ? "Pause" : all ? "Play again" : "Play";
  $("open").disabled = !runs.some(one => one.spec.some(canOpen));
  if (all && playing) { playing = false; say(outcome()); }
}
function outcome() {
  const text = rounds => rounds.flatMap(r => r.text).join(""), { alone, spec, settings, stopped, about } = run;
  const at = alone.flatMap(r => r.tokens).findIndex((token, i) => token !== spec.flatMap(r => r.tokens)[i]);
  const same = stopped ? "The run was stopped." : text(alone) === text(spec)
    ? "The two texts are the same, letter by letter." : settings.temperature > 0
      ? "Both texts are drawn at random, so the words differ; with a lossless rule their distribution is the same."
      : `The texts differ from token ${at + 1} on` + (about.edited ? ": this rule is not lossless."
        : ": the two likeliest tokens were nearly equal there, and rounding decided.");
  return `${many(spec.length, "pass", "es")} of the large model with drafts, ${alone.length} alone. ${same}`;
}
const say = words => { $("said").textContent = words; };
function tracks() {                                     // both on one scale: only then their lengths compare
  const scale = finish() || 1, NS = "http://www.w3.org/2000/svg";
  const bar = (kind, from, to) => {
    const rect = document.createElementNS(NS, "rect"), gap = Math.min(.12, (to - from) * .3);
    for (const [name, value] of [["class", kind], ["x", from], ["width", Math.max(to - from - gap, 0)], ["height", 1]])
      rect.setAttribute(name, value);
    return rect;
  };
  const bars = { alone: run.alone.map((_, i) => bar("f-q", i, i + 1)), spec: line.flatMap(({ begins, drafted, ends }, i) => [
    ...Array.from({ length: draftingOf(run.spec[i]) }, (_, j) => bar("f-p", begins + j * c, begins + (j + 1) * c)),
    bar("f-q", drafted, ends)]) };
  for (const name of LANES) {
    const svg = document.createElementNS(NS, "svg"), box = $("track-" + name);
    const last = name === "alone" ? run.alone.length : end(), gap = el("div", "gap", `${(scale - last).toFixed(1)} steps less`);
    for (const [key, value] of [["viewBox", `0 0 ${scale} 1`], ["preserveAspectRatio", "none"]]) svg.setAttribute(key, value);
    svg.append(...bars[name]);
    gap.style.left = 100 * last / scale + "%";
    box.replaceChildren(svg, el("div", "later"), el("div", "head"), ...run.over && last < .8 * scale ? [gap] : []);
    box.setAttribute("aria-label", name === "alone" ? many(run.alone.length, "pass", "es") + " of one step"
      : `${many(run.spec.length, "round")} of drafts and a pass, ${end().toFixed(1)} steps in all`);
  }
}

// The costs ---------------------------------------------------------------------------------------------------
function lay() {                                        // after another run, other costs, or an arrival
  line = timeline(run, c, v);
  const { most, n_drafting } = run.about, speed = run.spec.length ? speedup(run, c, v) : 0, b = x => el("b", "", x.toFixed(2));
  const [accepted, tested] = acceptance(run.spec), n = tokensOf(run.spec), off = speed && speed < 1;
  $("speed").textContent = speed ? speed.toFixed(2) + "×" : "…";
  $("speed").className = off ? "slow" : "";
  $("formula").replaceChildren(el("div", "", `${n} tokens ÷ ${end().toFixed(1)} steps; `,
    `a full round: ${n_drafting} × `, b(c), " + ", b(v), " = ", b(n_drafting * c + v)),
    el("div", "", `${accepted} of ${tested} tested drafts accepted`, tested ? ` (${Math.round(100 * accepted / tested)} %)` : ""));
  $("advice").textContent = off ? "Below 1: switch it off." : speed ? "Above 1: drafts pay." : "";
  $("most-is").textContent = `${most - 1} drafts + 1`;
  $("v-why").textContent = `not ${most}: the weights are read once for all ${most} tokens`;
  $("v").max = most;
  for (const [id, value] of [["c", c], ["v", v]]) {
    $(id).value = value;
    $(id + "-is").textContent = `${id} = ${value.toFixed(2)}`;
    $(id).setAttribute("aria-valuetext", value.toFixed(2) + " steps of the large model");
  }
  $("presets").replaceChildren(...data.presets.map(one => {
    const choice = button(one.name, "", () => { preset = one; dial(one.c, costOf(run.about.most, one.v)); });
    choice.setAttribute("aria-pressed", one === preset);
    choice.disabled = !one.v;
    return choice;
  }));
  $("preset-words").textContent = preset?.words ?? "costs of your own";
  tracks();
  draw();
}
function dial(c1, v1) {                                 // the lower lane keeps its place; the clock is set to match
  const { done } = state(), at = line[done], over = now >= finish() - 1e-9, past = now - end();
  const drafting = at && now < at.drafted, from = at && (drafting ? at.begins : at.drafted);
  const part = at && (now - from) / ((drafting ? at.drafted : at.ends) - from);
  [c, v] = [c1, v1];
  line = timeline(run, c, v);
  const to = line[done];
  now = over ? Infinity : !to ? end() + past
    : drafting ? to.begins + part * (to.drafted - to.begins) : to.drafted + part * (to.ends - to.drafted);
  drawn = {};
  lay();
}
for (const id of ["c", "v"]) $(id).oninput = () => { preset = null; dial(Number($("c").value), Number($("v").value)); };

// Play, step, choose ------------------------------------------------------------------------------------------
function tick(time) {
  if (!playing) return;
  now += Math.min(Math.max(time - before, 0), 100) / PACE;
  before = time;
  draw();
  if (playing) requestAnimationFrame(tick);
}
function play(on) {
  if (on && run.over && now >= finish() - 1e-9) now = 0;
  [playing, before] = [on, performance.now()];
  say("");
  draw();
  if (on) requestAnimationFrame(tick);
}
function step(by) {                                     // to the end of the next round, or of the one before
  play(false);
  const ends = [0, ...line.map(r => r.ends)];
  now = by > 0 ? ends.find(at => !passed(at)) ?? finish() : ends.findLast(at => at < now - 1e-9) ?? 0;
  draw();
  const { done } = state(), r = run.spec[done - 1];
  say(r ? `Round ${done}: ${r.kept} of ${many(draftingOf(r), r.nodes ? "level" : "draft")} accepted`
    + (r.last ? `, then ${quoted(r.text.at(-1))}.` : ".") : "");
}
function choose(chosen) {
  [run, now, drawn] = [chosen, 0, {}];
  const label = one => `${one.settings.prompt.slice(0, 28)}…, temperature ${one.settings.temperature}`;
  $("which-run").replaceChildren(...runs.map((one, i) => new Option((one.recorded ? "" : "your run: ") + label(one), i)));
  $("which-run").value = runs.indexOf(run);
  $("badge").textContent = run.recorded ? "a recording" : "your run";
  $("badge").className = run.recorded ? "" : "yours";
  if (preset) [c, v] = [preset.c, costOf(run.about.most, preset.v)];
  v = Math.min(v, run.about.most);
  lay();
}
$("play").onclick = () => play(!playing);
$("back").onclick = () => step(-1);
$("step").onclick = () => step(1);
$("open").onclick = () => {
  const i = Math.max(0, state().done - 1);
  if (canOpen(run.spec[i])) openRound(run, i, true); else openRound(opened.of, opened.i, true);
};
$("which-run").onchange = () => { choose(runs[$("which-run").value]); play(!STILL); };
for (const name of LANES) $("track-" + name).onclick = event => {
  const box = $("track-" + name).getBoundingClientRect();
  play(false);
  now = finish() * (event.clientX - box.left) / box.width;
  draw();
};
