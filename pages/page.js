// The form, the address that says what is set and shown, the projector's views, and how the page begins.
const KEYS = ["prompt", "K", "temperature", "top_p", "seed", "n_tokens", "drafter", "verifier"];
const TEXTS = ["prompt", "drafter", "verifier"], root = document.documentElement;
const START = { ...data.settings, open: openings[0].name };
const VIEWS = ["race", "when", "round", "tree", "why", "guess", "own", "end"];
const PARTS = { race: ["race", "dials"], when: ["dials", "when"], tree: ["round"] };   // of a view
let viewing = "";                                       // on a projector: what is shown; else ""

const asSet = () => Object.fromEntries(KEYS.map(key =>
  [key, TEXTS.includes(key) ? $(key).value : Number($(key).value)]));
function addressOf(more) {                              // what is set, opened and shown
  const all = { ...asSet(), open: rule.name, ...linked_to, ...touring ? { tour: touring } : { view: viewing }, ...more };
  const given = Object.entries(all).filter(([key, value]) => value !== (START[key] ?? ""));
  return location.href.split("#")[0] + (given.length ? "#" + new URLSearchParams(given) : "");
}
function remember() { history.replaceState(null, "", addressOf({})); }
function race(code = "") {
  $("drawer").open ||= !$("form").checkValidity();
  if (!$("form").reportValidity()) return false;
  remember();
  request({ race: { ...asSet(), code } });
  return true;
}
function view(name) {                                   // one part alone; "": the whole page
  viewing = name;
  root.className = touring ? "stage tour" : name ? "stage" : "";
  $("leave").hidden = !name;
  $("guide").hidden = !touring;
  $("end").hidden = name !== "end";
  const parts = PARTS[name] ?? [name];
  for (const part of $("main").children) part.classList.toggle("on", parts.includes(part.id));
  for (const tab of $("tabs").children) tab.ariaCurrent = String(name !== "" && nameOf(tab) === name);
  remember();
  scrollTo(0, 0);
}
const nameOf = tab => tab.id || tab.hash.slice(1);
const scrollThere = show;
show = id => viewing ? viewing !== "tree" || id !== "round" ? view(id) : null : scrollThere(id);
$("tabs").onclick = event => {
  const tab = event.target.closest("a"), name = tab && nameOf(tab);
  if (!tab) return;
  event.preventDefault();
  if (name === "tree") openBest(runs.filter(isTree));
  if (name === "round" && opened?.r.nodes) openBest(runs.filter(isLine));
  if (name === "stage" || name === "leave") view(name === "stage" ? "race" : "");
  else if (viewing) view(name);
  else scrollThere(name === "tree" ? "round" : name);
  if (name !== "leave") $({ tree: "round", stage: "race" }[name] ?? name).focus({ preventScroll: true });
};
function linked(first) {                                // the address, at the start and when it changes
  const given = new URLSearchParams(location.hash.slice(1)), settings = KEYS.some(key => given.has(key));
  for (const key of KEYS) if (settings || first) {
    $(key).value = given.get(key) ?? START[key];
    if (key !== "prompt" && !$(key).value) $(key).value = START[key];
  }
  if (settings) {                                       // nothing runs unasked
    $("drawer").open = true;
    $("status").textContent = "Set as in the link: press Run.";
  }
  if (given.has("open")) open(Math.max(0, openings.findIndex(it => it.name === given.get("open"))));
  const name = given.get("view") ?? "";
  if (name || viewing) view(!name || VIEWS.includes(name) ? name : "race");
  const shared = runs[given.get("run") - 1];
  if (shared && shared.spec[given.get("round") - 1]) {
    choose(shared);
    now = finish();
    draw();
    openRound(shared, given.get("round") - 1, true);
  }
  if (given.has("tour")) go(Number(given.get("tour")) || 1);
  if (name === "tree") openBest(runs.filter(isTree));
  if (given.has("code")) openLinked(given.get("code"));
}
$("form").onsubmit = event => { event.preventDefault(); race(); };
addEventListener("hashchange", () => linked(false));
addEventListener("keydown", event => { if (event.key === "Escape" && viewing) view(""); });

noted = remember;
for (const part of $("main").querySelectorAll("section")) part.tabIndex = -1;
$("size").textContent = `Run loads Python and the models, ${Math.round(SIZE / 1e6)} MB.`;
open(0);
