// The race: two lanes on one clock.  All that is on the screen follows from `now`, in steps: passes of the
// large model over one token.  A run: { settings, about, alone, spec, recorded, over }; alone and spec are
// rounds as pages/rounds.py describes them.
// The arithmetic: a round of k drafts costs k c + v(k) ---------------------------------------------------
const tokensOf = rounds => sum(rounds, r => r.tokens.length);
const passCost = (rows, most, v) => 1 + (v - 1) * (rows - 1) / (most - 1);     // v is the cost of `most` rows
function timeline({ spec, about }, c, v) {              // when each round begins, has drafted, and ends
  let at = 0;
  return spec.map(({ depth, rows }) => {                // depth: passes of the small model
    const begins = at, drafted = begins + depth * c;
    return { begins, drafted, ends: at = drafted + passCost(rows, about.most, v) };
  });
}
const speedup = (run, c, v) => tokensOf(run.spec) / timeline(run, c, v).at(-1).ends;

// The state ----------------------------------------------------------------------------------------------
const PACE = 300, LANES = ["alone", "spec"], names = {};        // milliseconds a step; names: token: its text
const runs = data.runs.map(one => ({ ...one, recorded: true, over: true }));
runs.forEach(one => one.spec.forEach(r => Object.assign(names, r.names)));
let run = runs[0], preset = data.presets[0], c = 0, v = 1, now = 0, playing = false, before = 0, line = [];
let drawn = {};
const end = () => line.at(-1)?.ends ?? 0, finish = () => Math.max(run.alone.length, end());
const limit = () => run.over ? finish() : Math.min(run.alone.length, end());    // what has arrived
const passed = at => at <= now + 1e-9;
function state() {                                      // how many rounds are done, and what is drafted since
  const done = line.filter(r => passed(r.ends)).length, r = line[done], begun = r && now > r.begins;
  const drafted = !begun ? 0 : c ? Math.floor((now - r.begins) / c + 1e-9) : Infinity;
  return { done, drafted, checking: Boolean(begun && passed(r.drafted)) };
}

// The lanes ----------------------------------------------------------------------------------------------
function shortened(prompt) {                            // its end, from the beginning of a word
  return prompt.length < 48 ? prompt : "… " + prompt.slice(prompt.indexOf(" ", prompt.length - 44) + 1);
}
function lane(name, ...parts) {
  $("text-" + name).replaceChildren(el("span", "soft", shortened(run.settings.prompt)), ...parts);
  $("text-" + name).scrollTop = 1e6;
}
function chips(kind, words, text = false) {             // the space before a word stays outside its chip
  return words.flatMap(word => {
    const shown = word.replace(/^ (?=\S)/, "").replace(/^ $/, "·");
    const breaks = !text && word.includes("\n") && /accepted|own/.test(kind);
    return [/^ \S/.test(word) ? " " : "\u200b", text ? el("span", "t-" + kind, shown)
      : el("span", "chip c-" + kind, shown.replace(/\n/g, "↵")), breaks ? "\n" : ""];
  });
}
function roundIn(r, i, last) {                          // the last round shows what became of each draft
  const box = el("span", "can", ...chips("accepted", r.text.slice(0, r.kept), !last));
  if (last) for (const d of (r.drafts ?? []).slice(r.kept))
    box.append(...chips(d.rejected ? "out" : "unread", [names[d.token]]));
  box.append(...chips("own", r.text.slice(r.kept), !last));
  box.onclick = () => openRound(run, i, true);
  return box;
}
function pending({ nodes, drafts }, { drafted, checking }) {
  if (!drafted && !checking) return [];
  return chips(checking ? "check" : "open", nodes ? [` ${nodes.length} drafts in a tree`]
    : drafts.slice(0, drafted).map(d => names[d.token]));
}
function draw() {
  now = Math.max(0, Math.min(now, limit()));
  const so = state(), alone = Math.min(run.alone.length, Math.floor(now + 1e-9)), next = run.spec[so.done];
  const last = { alone: run.alone.length, spec: end() }, first = last.spec < last.alone ? "spec" : "alone";
  const all = run.over && passed(finish()), shown = [...Object.values(so), all].join();
  if (drawn.alone !== alone) lane("alone", run.alone.slice(0, alone).flatMap(r => r.text).join(""));
  if (drawn.spec !== shown) lane("spec", ...run.spec.slice(0, so.done).map((r, i) =>
    roundIn(r, i, i === so.done - 1 && !all)), ...next ? pending(next, so) : []);
  drawn = { alone, spec: shown };
  const counts = { alone: [alone, alone], spec: [tokensOf(run.spec.slice(0, so.done)), so.done] };
  for (const name of LANES) {
    const [tokens, passes] = counts[name], at = Math.min(now, last[name]), box = $("count-" + name);
    const ended = run.over && passed(last[name]), done = `done${name === first ? " first" : ""}, after `;
    box.className = ended && name === first ? "first" : "";
    box.replaceChildren(`${many(tokens, "token")}, ${many(passes, "pass", "es")}, `,
      b(`${ended ? done : ""}${at.toFixed(1)} steps`));
    $("track-" + name).style.setProperty("--at", 100 * at / (finish() || 1) + "%");
  }
  $("play").textContent = playing ? "Pause" : all ? "Play again" : "Play";
  if (all && playing) { playing = false; say(outcome()); }
}
function outcome() {
  const { alone, spec, settings: { temperature }, stopped, about } = run;
  const [one, two] = [alone, spec].map(rounds => rounds.flatMap(r => r.tokens).concat(-1));
  const at = one.findIndex((token, i) => token !== two[i]);
  return stopped ? "The run was stopped." : at < 0 ? "The two texts are the same, token for token."
    : temperature > 0 ? "Both are drawn at random: other words, one distribution if the rule is lossless."
      : `The texts differ from token ${at + 1} on` + (about.edited ? "."
        : ": two tokens were almost equally likely there, and rounding decided.");
}
const say = words => { $("said").textContent = words; };
function tracks() {                                     // both on one scale: only then their lengths compare
  const rect = (kind, x, width) => `<rect class="${kind}" x="${x}" width="${.88 * width}" height="1"/>`;
  const drafts = (at, n) => Array.from({ length: n }, (_, j) => rect("f-p", at.begins + j * c, c));
  const parts = { alone: run.alone.map((_, i) => rect("f-q", i, 1)), spec: line.flatMap((at, i) =>
    [...drafts(at, run.spec[i].depth), rect("f-q", at.drafted, at.ends - at.drafted)]) };
  for (const name of LANES) $("track-" + name).innerHTML = `<svg viewBox="0 0 ${finish() || 1} 1"
    preserveAspectRatio="none">${parts[name].join("")}</svg><i></i><i class="head"></i>`;
}

// The costs ----------------------------------------------------------------------------------------------
function lay() {                                        // after another run, other costs, or an arrival
  line = timeline(run, c, v);
  const { most, n_drafting } = run.about, speed = run.spec.length && speedup(run, c, v);
  const [accepted, tested] = ["kept", "tested"].map(key => sum(run.spec, r => r[key]));
  const off = speed && speed < 1;
  $("speed").textContent = speed ? speed.toFixed(2) + "×" : "…";
  $("speed").className = off ? "slow" : "";
  $("advice").textContent = !speed ? "" : off ? "Below 1: switch it off." : "Above 1: drafting pays.";
  $("formula").replaceChildren(...words`${tokensOf(run.spec)} tokens ÷ ${end().toFixed(1)} steps. A full
    round: ${n_drafting} c + v = ${b((n_drafting * c + v).toFixed(2))}${el("br", "")}${accepted} of ${tested}
    tested drafts accepted: ${Math.round(100 * accepted / tested || 0)} %`);
  $("most-is").textContent = `${most - 1} drafts + 1`;
  $("v-why").textContent = `not ${most}: the weights are read once for all ${most} tokens`;
  $("v").max = most;
  for (const [id, value] of [["c", c], ["v", v]]) {
    $(id).value = value;
    $(id + "-is").textContent = `${id} = ${value.toFixed(2)}`;
    $(id).setAttribute("aria-valuetext", value.toFixed(2) + " steps of the large model");
  }
  for (const [i, one] of data.presets.entries()) {
    $("presets").children[i].ariaPressed = String(one === preset);
    $("presets").children[i].disabled = !one.v;
  }
  $("preset-words").textContent = preset?.words ?? "costs of your own";
  tracks();
  draw();
}
function dial(c1, v1) {                                 // the lower lane stays where it is; the clock follows
  const share = now / end(), over = passed(finish());
  [c, v, drawn] = [c1, v1, {}];
  line = timeline(run, c, v);
  now = over ? Infinity : share ? share * end() : 0;
  lay();
}
const use = one => { preset = one; dial(one.c, one.v[run.about.most - 1]); };      // v: by rows
$("presets").append(...data.presets.map(one => button(one.name, "", () => use(one))));
for (const id of ["c", "v"]) $(id).oninput = () => {
  preset = null;
  dial(Number($("c").value), Number($("v").value));
};

// Play, step, choose -------------------------------------------------------------------------------------
function tick(time) {
  if (!playing) return;
  now += Math.min(Math.max(time - before, 0), 100) / PACE;
  before = time;
  draw();
  if (playing) requestAnimationFrame(tick);
}
function play(on) {
  if (on && run.over && passed(finish())) now = 0;
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
  const i = state().done, r = run.spec[i - 1];
  if (r) say(`Round ${i}: ${r.kept} of ${many(r.depth, r.nodes ? "level" : "draft")} accepted`
    + (r.own ? `, then ${quoted(r.text.at(-1))}.` : "."));
}
function choose(chosen) {
  [run, now, drawn] = [chosen, 0, {}];
  const label = ({ recorded, settings: { prompt, temperature } }) => (recorded ? "" : "your run: ")
    + `temperature ${temperature}: ${prompt.slice(0, 28)}…`;
  $("which-run").replaceChildren(...runs.map((one, i) => new Option(label(one), i)));
  $("which-run").value = runs.indexOf(run);
  $("badge").textContent = run.recorded ? "a recording" : "your run";
  $("badge").className = run.recorded ? "" : "yours";
  if (preset) [c, v] = [preset.c, preset.v[run.about.most - 1]];
  v = Math.min(v, run.about.most);
  lay();
}
$("play").onclick = () => play(!playing);
$("back").onclick = () => step(-1);
$("step").onclick = () => step(1);
$("open").onclick = () => run.spec.length && openRound(run, Math.max(0, state().done - 1), true);
$("which-run").onchange = () => { choose(runs[$("which-run").value]); play(!STILL); };
