// The form, the address that says what is set, and how the page begins.
const KEYS = ["prompt", "K", "temperature", "top_p", "seed", "n_tokens", "drafter", "verifier"];
const TEXTS = ["prompt", "drafter", "verifier"], START = data.settings, root = document.documentElement;
let touched = false;                                    // has the reader begun to look at something?

const asSet = () => Object.fromEntries(KEYS.map(key =>
  [key, TEXTS.includes(key) ? $(key).value : Number($(key).value)]));
function remember() {                                   // in the address: what is set, opened and typed
  const code = $("editor").value, more = rule === openings[0] ? {} : { open: rule.name };
  if (code !== rule.code) more.code = code;
  if (root.className) more.view = root.className;
  history.replaceState(null, "", "#" + new URLSearchParams({ ...asSet(), ...more }));
}
function race(code = "") {
  $("drawer").open ||= !$("form").checkValidity();
  if (!$("form").reportValidity()) return false;
  remember();
  request({ race: { ...asSet(), code } });
  return true;
}
function linked(first) {                                // the address, at the start and when it changes
  const given = new URLSearchParams(location.hash.slice(1)), settings = KEYS.some(key => given.has(key));
  root.className = given.get("view") ?? "";
  $("leave").hidden = !root.className;
  for (const key of KEYS) if (settings || first) {
    $(key).value = given.get(key) ?? START[key];
    if (key !== "prompt" && !$(key).value) $(key).value = START[key];
  }
  if (given.has("open")) open(Math.max(0, openings.findIndex(it => it.name === given.get("open"))));
  $("editor").value = given.get("code") ?? $("editor").value;
  differences();
  if (!first && settings) race();
}
$("form").onsubmit = event => { event.preventDefault(); race(); };
addEventListener("hashchange", () => linked(false));
addEventListener("keydown", event => { if (event.key === "Escape" && root.className) location.hash = ""; });
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { touched = true; });

open(0);
begin();
linked(true);
const loads = !matchMedia("(pointer: coarse)").matches && !navigator.connection?.saveData && !touched;
if (loads && location.protocol !== "file:") setTimeout(() => asked || request({}), 1500);
else $("status").textContent = `Your own run loads Python and models, ${Math.round(SIZE / 1e6)} MB.`;
