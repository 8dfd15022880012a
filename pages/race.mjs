// The race: two lanes on one clock.  All that is on the screen follows from `now`, in steps: passes of the
// large model over one token.  A run: { settings, about, alone, spec, recorded, over }; alone and spec are
// rounds as pages/rounds.py describes them.
import { acceptance, speedup, timeline, tokensOf } from "./formula.mjs";
import { $, STILL, b, button, data, el, exact, many, quoted, words } from "./dom.mjs";
import { backToItsPlace, openToken } from "./round.mjs";
import { measureHere } from "./python.mjs";
// The state ----------------------------------------------------------------------------------------------
const PACE = 300, PHASE = 1200, HOLD = 700;             // milliseconds: a step; if slow: a phase, a halt
export const LANES = ["alone", "spec"], names = {};            // names: token: its text
export const runs = data.runs.map(one => ({ ...one, recorded: true, over: true }));
runs.forEach(one => one.spec.forEach(r => Object.assign(names, r.names)));
export const s = { run: runs[0], preset: data.presets[0], c: 0, v: 1, now: 0, playing: false, slow: false,
  once: false, opened: null, stops: [], at: 0, what: {} };        // once: it stops at the next halt
let before = 0, held = 0, frame = 0, boxes = [], drawn = {};       // boxes: the rounds on the screen
export let line = [], shape = s.preset.v;               // shape: a machine's cost by rows
export const end = () => line.at(-1)?.ends ?? 0, finish = () => Math.max(s.run.alone.length, end());
const limit = () => s.run.over ? finish() : Math.min(s.run.alone.length, end());    // what has arrived
const passed = at => at <= s.now + 1e-9;
function reached() {                                    // how many rounds are done, and what is drafted since
  const done = line.filter(r => passed(r.ends)).length, r = line[done], begun = r && s.now > r.begins + 1e-9;
  const drafted = !begun ? 0 : s.c ? Math.floor((s.now - r.begins) / s.c + 1e-9) : Infinity;
  return { done, drafted, checking: Boolean(begun && s.now > r.drafted + 1e-9) };
}
function halts() {                                      // where one stops: in slow motion thrice a round
  return [0, ...line.flatMap(({ drafted, ends }) => s.slow ? [drafted, (drafted + ends) / 2, ends] : [ends])];
}

// Who drafts: [what a draft costs, what p is, how it is said of a draft]; and who judges -------------------
export const SAID = data["words.json"];
export const ruleOf = ({ settings, about }) => about.edited ? "your own" : settings.verifier.split(":")[0];
export function drafterOf(run) {                        // schedule:lookup is lookup, schedule alone the model
  const [name, within] = run.settings.drafter.split(/:(?=[a-z])/), wraps = /^(schedule|optimum|confident)/;
  const said = SAID.drafters[(wraps.test(name) ? within ?? "model" : name).split(":")[0]];
  const [cost, ...p] = said ?? SAID.drafters.other;
  return [cost, ...SAID.drafts_of[ruleOf(run)] ?? p];
}
export const isTree = ({ about: { most, n_drafting } }) => most > n_drafting + 1;
export const cellOf = run =>                                   // under which preset.c has a draft's cost
  `${run.settings.drafter} ${isTree(run) ? "tree:3,2,1" : "token K=4"} T=1`;
const costOf = ({ c }, run) => typeof c === "number" ? c : c[cellOf(run)];      // undefined: not measured

// The lanes ----------------------------------------------------------------------------------------------
export function shortened(prompt) {                            // its end, from the beginning of a word
  return prompt.length < 48 ? prompt : "… " + prompt.slice(prompt.indexOf(" ", prompt.length - 44) + 1);
}
export function chips(kind, words) {                    // the space before a word stays outside its chip
  return words.flatMap(word => {
    const shown = word.replace(/^ (?=\S)/, "").replace(/^ $/, "·").replace(/\n/g, "↵");
    const tag = /^(out|unread)/.test(kind) ? "del" : "span";
    return [/^ \S/.test(word) ? " " : el("wbr"), el(tag, "chip c-" + kind, shown)];
  });
}
function asText(kind, words) {                          // as text; a line's end has a sign while it is a chip
  return words.flatMap(word => [/^ \S/.test(word) ? " " : el("wbr"), el("span", "token t-" + kind,
    ...word.replace(/^ (?=\S)/, "").split(/(\n)/).flatMap(part => part === "\n"
      ? [el("span", "sign", "↵"), part] : part))]);
}
function roundIn(r) {                                   // the last round shows what became of each draft
  const box = el("span", "can", ...asText("accepted", r.text.slice(0, r.accepted)));
  for (const d of (r.drafts ?? []).slice(r.accepted))
    box.append(el("span", "gone", ...chips(d.rejected ? "out" : "unread", [names[d.token]])));
  box.append(...asText("own", r.text.slice(r.accepted)));
  box.querySelectorAll(".token, .chip").forEach((one, j) => { one.dataset.j = j; });
  box.ariaLabel = `Round ${s.run.spec.indexOf(r) + 1}: ${spoken(r)}`;
  return Object.assign(box, { tabIndex: 0, role: "button" });
}
function spoken({ accepted, text, drafts = [] }) {
  const list = (verb, tokens) => tokens.length ? [`${verb} ${tokens.map(one => one.trim()).join(", ")}`] : [];
  const rejected = drafts.filter(d => d.rejected).map(d => names[d.token]);
  return [...list("accepted", text.slice(0, accepted)), ...list("rejected", rejected),
    ...list("drawn", text.slice(accepted))].join("; ");
}
function pending({ nodes, drafts }, { drafted, checking }) {
  const shown = nodes ? [` ${nodes.length} drafts in a tree`] : drafts.slice(0, drafted);
  return drafted || checking ? chips(checking ? "check" : "open", shown.map(d => names[d.token] ?? d)) : [];
}
function drawSpec(so, all) {                            // a round on the screen stays the same element
  const box = $("text-spec");
  if (drawn.run !== s.run) {
    boxes = [];
    backToItsPlace();
    box.replaceChildren(el("span", "soft", shortened(s.run.settings.prompt)), el("span", "pending"));
  }
  while (boxes.length > so.done) boxes.pop().remove();
  for (const r of s.run.spec.slice(boxes.length, so.done)) {
    boxes.push(roundIn(r));
    box.lastChild.before(boxes.at(-1));
  }
  boxes.forEach((one, i) => one.classList.toggle("last", i === so.done - 1 && !all));
  box.lastChild.replaceChildren(...s.run.spec[so.done] ? pending(s.run.spec[so.done], so) : []);
}
export function draw() {
  s.now = Math.max(0, Math.min(s.now, limit()));
  const so = reached(), alone = Math.min(s.run.alone.length, Math.floor(s.now + 1e-9));
  const last = { alone: s.run.alone.length, spec: end() }, first = last.spec < last.alone ? "spec" : "alone";
  const all = s.run.over && passed(finish()), shown = [...Object.values(so), all].join();
  const changed = name => drawn.run !== s.run || drawn[name] !== { alone, spec: shown }[name];
  if (changed("spec")) drawSpec(so, all);
  if (changed("alone")) $("text-alone").replaceChildren(el("span", "soft", shortened(s.run.settings.prompt)),
    s.run.alone.slice(0, alone).flatMap(r => r.text).join(""));
  for (const name of LANES) if (changed(name)) $("text-" + name).scrollTop = 1e6;
  drawn = { run: s.run, alone, spec: shown };
  const counts = { alone: [alone, alone], spec: [tokensOf(s.run.spec.slice(0, so.done)), so.done] };
  for (const name of LANES) {
    const [tokens, passes] = counts[name], at = Math.min(s.now, last[name]), box = $("count-" + name);
    const ended = s.run.over && passed(last[name]), done = `done${name === first ? " first" : ""}, after `;
    box.classList.toggle("first", ended && name === first);
    box.replaceChildren(`${many(tokens, "token")}, ${many(passes, "pass", "es")}, `,
      b(`${ended ? done : ""}${at.toFixed(1)} steps`));
    $("track-" + name).style.setProperty("--at", 100 * at / (finish() || 1) + "%");
  }
  $("play").textContent = s.playing ? "Pause" : all ? "Play again" : "Play";
  if (all && s.playing) { s.playing = false; say(outcome()); }
}
function outcome() {
  const { alone, spec, settings: { temperature }, stopped, about: { lossless, edited } } = s.run;
  const [one, two] = [alone, spec].map(rounds => rounds.flatMap(r => r.tokens).concat(-1));
  const at = one.findIndex((token, i) => token !== two[i]);
  return SAID.outcome[stopped ? "stopped" : at < 0 ? "same" : temperature > 0 ? `drawn, ${lossless}`
    : edited || !lossless ? "differ" : "rounding"].replace("{n}", at + 1);
}
function moment() {                                     // what is to be seen now, in a sentence
  const { done, drafted, checking } = reached(), r = s.run.spec[checking || drafted ? done : done - 1];
  if (!r) return "";
  const drafts = many((r.nodes ?? r.drafts).length, "draft"), each = isTree(s.run) ? "Each level" : "Each";
  if (checking) return `Round ${done + 1}: the large model checks ${drafts} in one pass.`;
  if (drafted) return `Round ${done + 1}: ${drafts}. ${each} is ${drafterOf(s.run)[0]}.`;
  return `Round ${done}: ${r.accepted} of ${many(r.depth, isTree(s.run) ? "level" : "draft")} accepted`
    + (r.own ? `, then ${quoted(r.text.at(-1))}.` : ".");
}
const say = words => { $("said").textContent = words; };
function tracks() {                                     // both on one scale: only then their lengths compare
  const rect = (kind, x, width) => `<rect class="${kind}" x="${x}" width="${.88 * width}" height="1"/>`;
  const drafts = (at, n) => Array.from({ length: n }, (_, j) => rect("f-p", at.begins + j * s.c, s.c));
  const parts = { alone: s.run.alone.map((_, i) => rect("f-q", i, 1)), spec: line.flatMap((at, i) =>
    [...drafts(at, s.run.spec[i].depth), rect("f-q", at.drafted, at.ends - at.drafted)]) };
  for (const name of LANES) $("track-" + name).innerHTML = `<svg viewBox="0 0 ${finish() || 1} 1"
    preserveAspectRatio="none">${parts[name].join("")}</svg><i></i><i class="head"></i>`;
}

// The costs ----------------------------------------------------------------------------------------------
export const watchers = [];                                    // called after lay()
export function lay() {                                 // after another run, other costs, or an arrival
  line = timeline(s.run, s.c, s.v);
  const { most, n_drafting } = s.run.about, speed = s.run.spec.length && speedup(s.run, s.c, s.v);
  const shown = speed.toFixed(2), real = s.preset === data.presets[0] && s.run.measured;
  const busy = real && Math.max(real / speed, speed / real) > 1.2 || s.preset && s.v < 1;
  const [accepted, tested] = acceptance(s.run), off = speed && speed < 1;
  [$("speed").textContent, $("speed").className] = [speed ? shown + "×" : "…", off ? "slow" : ""];
  $("advice").textContent = !speed ? "" : `${shown} times as fast as the large model alone${off
    ? ". Switch drafting off." : ""}`;
  $("formula").replaceChildren(...words`${real ? b(`Measured without the prompt: ${real.toFixed(2)}. `) : ""}
    ${busy ? b(`The machine was busy: ${s.v < 1 ? "v is below 1" : "these differ by a fifth"}. `, "no") : ""}
    ${tokensOf(s.run.spec)} tokens ÷ ${end().toFixed(1)} steps. A full round: ${n_drafting} c + v =
    ${b((n_drafting * s.c + s.v).toFixed(2))}${el("br", "")}${accepted} of ${tested} tested
    ${isTree(s.run) ? "levels" : "drafts"} accepted: ${Math.round(100 * accepted / tested || 0)} %`);
  $("most-is").textContent = `${most - 1} drafts + 1`;
  $("c-why").textContent = isTree(s.run) ? "one level of the tree" : drafterOf(s.run)[0];
  $("v-why").textContent = s.v > .9 * most ? `as much as ${most} passes: reading weights once saves nothing`
    : `less than ${most} passes: the weights are read only once`;
  [$("c").max, $("v").min, $("v").max] = [Math.max(1, s.c), Math.min(1, s.v), Math.max(most, s.v)];
  for (const id of ["c", "v"])
    [$(id).value, $(id + "-is").textContent] = [s[id], `${id} = ${s[id].toFixed(2)}`];
  data.presets.forEach((one, i) => { $("presets").children[i].ariaPressed = String(one === s.preset); });
  $("preset-words").textContent = !s.preset ? "costs of your own" : s.preset.words
    || `measured here: c = ${s.c.toFixed(2)}, v = ${s.v.toFixed(2)} (WebAssembly multiplies slowly)`;
  tracks();
  draw();
  watchers.forEach(watch => watch());
}
export function dial(c1, v1, preset = s.preset) { // the lower lane stays; the clock follows
  const share = s.now / end(), over = passed(finish());
  [s.c, s.v, s.preset] = [c1, v1, preset];
  drawn.spec = null;
  line = timeline(s.run, s.c, s.v);
  s.now = over ? Infinity : share ? share * end() : 0;
  lay();
}
export function use(one) {                                     // v: by rows
  if (costOf(one, s.run) === undefined) return measureHere();
  [s.preset, shape] = [one, one.v];
  dial(costOf(one, s.run), one.v[s.run.about.most - 1]);
}
$("presets").append(...data.presets.map(one => button(one.name, "", () => use(one))));
for (const id of ["c", "v"])
  $(id).oninput = () => dial(Number($("c").value), Number($("v").value), null);

// Play, step, choose -------------------------------------------------------------------------------------
function tick(time) {
  if (!s.playing) return;
  const passing = Math.min(Math.max(time - before, 0), 100);
  before = time;
  if (!s.slow) s.now += passing / PACE;
  else if (time > held) {                               // each phase takes as long, and then one looks at it
    const from = halts().findLast(passed), next = halts().find(at => !passed(at)) ?? finish();
    s.now = Math.min(next, s.now + passing / PHASE * (next - from));
    if (s.now === next) {
      if (s.once) play(false);
      held = time + HOLD;
      say(moment());
    }
  }
  draw();
  if (s.playing) frame = requestAnimationFrame(tick);
}
export function play(on) {
  if (on && s.run.over && passed(finish())) s.now = 0;
  [s.playing, before, held] = [on, performance.now(), 0];
  say("");
  draw();
  cancelAnimationFrame(frame);                          // one clock, however often play is pressed
  if (on) frame = requestAnimationFrame(tick);
}
export function step(by) {                                     // to the next halt, or the one before
  play(false);
  const [before, after] = [halts().findLast(at => at < s.now - 1e-9), halts().find(at => !passed(at))];
  s.now = by > 0 ? after ?? finish() : before ?? 0;
  draw();
  say(moment());
}
function label({ recorded, settings: { prompt, temperature, drafter, verifier } }) {
  const how = [recorded ? "" : "your run", drafter, verifier].filter(word => !/^(model|token|)$/.test(word));
  return [...how, `temperature ${temperature}`].join(", ") + `: ${prompt.slice(0, 26)}…`;
}
export const twinOf = ({ settings: mine }) => runs.find(({ recorded, settings }) => recorded &&
  !settings.temperature === mine.temperature > 0
  && ["prompt", "drafter", "verifier"].every(key => settings[key] === mine[key]));
export function choose(chosen) {
  [s.run, s.now] = [chosen, 0];
  $("which-run").replaceChildren(...runs.map((one, i) => new Option(label(one), i)));
  const twin = twinOf(s.run), { temperature } = s.run.settings;
  [$("which-run").value, $("twin").hidden] = [runs.indexOf(s.run), !twin];
  $("twin").textContent = `The same story at ${exact(twin?.settings.temperature)}`;
  $("differ").textContent = temperature ? `Temperature ${exact(temperature)}: each lane draws its tokens at
    random, so the texts differ.` : "Temperature 0: each token is the likeliest.";
  if (s.preset && costOf(s.preset, s.run) === undefined) s.preset = data.presets[0];
  if (s.preset)
    [shape, s.c, s.v] = [s.preset.v, costOf(s.preset, s.run), s.preset.v[s.run.about.most - 1]];
  else s.v = Math.min(s.v, s.run.about.most);
  lay();
}
$("play").onclick = () => play(!s.playing);
$("back").onclick = () => step(-1);
$("step").onclick = () => step(1);
$("slow").onclick = () => { $("slow").ariaPressed = String(s.slow = !s.slow); };
$("which-run").onchange = () => { choose(runs[$("which-run").value]); play(!STILL); };
$("twin").onclick = () => { choose(twinOf(s.run)); play(!STILL); };
$("bar").onclick = ({ detail, target }) =>              // by a pointer: then Space plays
  detail && target.closest("button") && $("race").focus({ preventScroll: true });
const boxAt = event => boxes.indexOf(event.target.closest(".can"));
$("text-spec").onpointerdown = event => {               // nothing moves below the pointer
  if (s.playing && event.pointerType === "mouse" && boxAt(event) >= 0) play(false);
};
$("text-spec").onclick = ({ target }) => {
  if (boxAt({ target }) >= 0) openToken(boxAt({ target }), target.closest("[data-j]")?.dataset.j);
};
