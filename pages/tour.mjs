// The ten minutes of docs/lesson.md, as a tour: at each stop one sentence, and one lit part of a view.
import { $, STILL, data, el } from "./dom.mjs";
import { choose, isTree, line, play, runs, s, step, twinOf } from "./race.mjs";
import { begin, best, light, openRound, roundsOf } from "./round.mjs";
import { answers, deal, dealt, drafted, game, prove } from "./game.mjs";
import { open, openings } from "./rule.mjs";
import { addressOf, asSet, linked, race, view } from "./page.mjs";
export let touring = 0;                                        // which stop, from 1
const { stops: GUIDE, end: ANSWERS } = data.tour;
const story = twinOf(runs[0]) ?? runs[0], second = best(story.spec.flatMap((r, i) =>
  r.accepted === 1 && r.drafts[1]?.rejected ? { of: story, r, i } : []));      // its second draft is rejected
function phase(from) {                                  // of the second round, in slow motion
  s.now = from(line[1]);
  if (STILL) step(1); else play(true);
}
function turn(found, is) {                              // the opened round, at a stop of its own
  openRound(found.of, found.i);
  s.at = Math.max(0, s.stops.findIndex(is));
  light();
}
const at_draft = (j, kind) => () => turn(second, stop => stop.kind === kind && stop.j === j);
const TOUR = {                                       // the stop's name: [the view, what is lit, what is done]
  "the race": ["race", ".lane", () => { s.slow = false; play(!STILL); }],
  "the drafts": ["race", "#text-spec, #legend, #said", () => phase(({ begins }) => begins)],
  "the check": ["race", "#text-spec, #legend, #said", () => phase(({ drafted }) => drafted)],
  "what stays": ["race", "#text-spec, #legend, #said", () => phase(at => (at.drafted + at.ends) / 2)],
  "the question": ["round", "#before, #picture, #words", at_draft(0, "show")],
  "accepted": ["round", "#before, #needle, #words", at_draft(0, "test")],
  "rejected": ["round", "#before, #needle, #words", at_draft(1, "test")],
  "what q lacks": ["round", "#picture, #words", at_draft(1, "left")],
  "the draw": ["round", "#before, #picture, #words", at_draft(1, "draw")],
  "why": ["why", "#proof", () => { game.p.forEach((p, i) => { drafted[i] = p; }); prove(); }],
  "when not": ["when", "#when .soft, #whats", () => {}],
  "a tree": ["round", "#nodes, #picture, #words", () => turn(best(roundsOf(runs.filter(isTree))),
    ({ kind }, i) => kind === "show" && s.stops[i - 1]?.more)],
  "one guess": ["guess", "#card", () => deal(false, false)],
  "your own rule": ["own", "#editor, #own-bar, #verdict, #differences", () => open(0)],
  "the end": ["end", "#end", () => {}],
};
export function go(to) {                                       // to a stop; after the last, the answers
  touring = Math.max(1, Math.min(to, GUIDE.length));
  const [name, words] = GUIDE[touring - 1], [where, lit, drive] = TOUR[name];
  [s.slow, s.once, s.playing, s.what, s.preset] = [true, true, false, {}, data.presets[0]];
  view(where);
  choose(runs[0]);
  drive();
  [$("guide-words").textContent, $("g-place").value] = [words, touring];
  [$("g-back").disabled, $("g-next").disabled] = [touring === 1, to > GUIDE.length];
  quiet([...document.querySelectorAll(lit)]);
  if (!document.activeElement?.closest("#guide :enabled")) $("guide-words").focus({ preventScroll: true });
}
function quiet(lit) {                                   // all that neither holds nor is in a lit part
  for (const one of document.querySelectorAll("[inert]")) one.inert = false;
  for (const one of lit) for (let up = one; up.id !== "main"; up = up.parentElement)
    for (const beside of up.parentElement.children) beside.inert ||= !lit.some(part => beside.contains(part));
}
function leave() {
  [touring, s.slow, s.once] = [0, false, false];
  quiet([]);
  view("");
  $("race").focus({ preventScroll: true });              // where Space plays
}
$("answers").append(...ANSWERS.flatMap(([asked, answer]) => [el("dt", "", asked), el("dd", "", answer)]));
$("g-place").append(...GUIDE.map(([name], i) => new Option(`${i + 1} of ${GUIDE.length}: ${name}`, i + 1)));
$("g-place").onchange = () => go(Number($("g-place").value));
for (const [id, by] of [["tour", 1], ["g-next", 1], ["g-back", -1]]) $(id).onclick = () => go(touring + by);
$("g-leave").onclick = leave;
addEventListener("keydown", event => {                  // PageDown and PageUp: a presenter's remote
  const { key, target } = event, by = { PageDown: 1, PageUp: -1 }[key];
  const free = !target.closest("button, a, input, select, textarea, summary, .part, .code, [role=button]");
  const more = free ? { " ": 1, ArrowRight: 1, ArrowLeft: -1 }[key] : 0;
  if (!touring || event.ctrlKey || event.metaKey || event.altKey) return;
  if (by || more) go(touring + (by ?? more));
  else if (key === "Escape") leave();
  else return;
  event.preventDefault();
  event.stopPropagation();
}, true);
Object.assign(globalThis, { go, leave, asSet, addressOf, race, open, openings, answers, dealt: () => dealt });
begin();
linked(true);
$("main").className = "";
