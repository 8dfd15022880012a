// The form, the address that says what is set and shown, the tour's views, and how the page begins.
import { $, data } from "./dom.mjs";
import { choose, draw, finish, isTree, runs, s } from "./race.mjs";
import { backToItsPlace, isLine, linked_to, openBest, openRound } from "./round.mjs";
import { SIZE, request } from "./python.mjs";
import { open, openLinked, openings, rule } from "./rule.mjs";
import { go, touring } from "./tour.mjs";
export const KEYS = ["prompt", "K", "temperature", "top_p", "seed", "n_tokens", "drafter", "verifier"];
const TEXTS = ["prompt", "drafter", "verifier"], root = document.documentElement;
const START = { ...data.settings, open: openings[0].name };

export const asSet = () => Object.fromEntries(KEYS.map(key =>
  [key, TEXTS.includes(key) ? $(key).value : Number($(key).value)]));
export function addressOf(more) {                              // what is set, opened and shown
  const all = { ...asSet(), open: rule.name, ...linked_to, tour: touring || "", ...more };
  const given = Object.entries(all).filter(([key, value]) => value !== (START[key] ?? ""));
  return location.href.split("#")[0] + (given.length ? "#" + new URLSearchParams(given) : "");
}
export function remember() { history.replaceState(null, "", addressOf({})); }
export function race(code = "") {
  $("drawer").open ||= !$("form").checkValidity();
  if (!$("form").reportValidity()) return false;
  remember();
  request({ race: { ...asSet(), code } });
  return true;
}
export function view(name) {                            // one part alone, in the tour; "": the whole page
  backToItsPlace();
  [root.className, $("guide").hidden, $("end").hidden] = [name && "tour", !name, name !== "end"];
  for (const part of $("main").children) part.classList.toggle("on", part.id === name);
  remember();
  scrollTo(0, 0);
}
$("tabs").onclick = event => {
  const tab = event.target.closest("a"), name = tab?.hash.slice(1);
  if (!tab) return;
  event.preventDefault();
  backToItsPlace();
  if (tab.id === "tree") openBest(runs.filter(isTree));
  else if (name === "round" && s.opened?.r.nodes) openBest(runs.filter(isLine));
  $(name).scrollIntoView();
  $(name).focus({ preventScroll: true });
};
export function linked(first) {                         // the address, at the start and when it changes
  const given = new URLSearchParams(location.hash.slice(1)), settings = KEYS.some(key => given.has(key));
  for (const key of KEYS) if (settings || first) {
    $(key).value = given.get(key) ?? START[key];
    if (key !== "prompt" && !$(key).value) $(key).value = START[key];
  }
  if (settings)                                         // nothing runs unasked
    [$("drawer").open, $("status").textContent] = [true, "Set as in the link: press Run."];
  if (given.has("open")) open(Math.max(0, openings.findIndex(it => it.name === given.get("open"))));
  const shared = runs[given.get("run") - 1];
  if (shared && shared.spec[given.get("round") - 1]) {
    choose(shared);
    s.now = finish();
    draw();
    openRound(shared, given.get("round") - 1, true);
  }
  if (given.has("tour")) go(Number(given.get("tour")) || 1);
  if (given.has("code")) openLinked(given.get("code"));
}
$("form").onsubmit = event => { event.preventDefault(); race(); };
addEventListener("hashchange", () => linked(false));

addEventListener("opened", remember);
for (const part of $("main").querySelectorAll("section")) part.tabIndex = -1;
$("size").textContent = `Run loads Python and the models, ${Math.round(SIZE / 1e6)} MB.`;
open(0);
