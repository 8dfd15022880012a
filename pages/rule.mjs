// Your own rule: the editor, the judge, and what differs from Algorithm 2.
import { $, b, data, el, many, words } from "./dom.mjs";
import { copy, plain, thread } from "./game.mjs";
import { request } from "./python.mjs";
import { addressOf, race, remember } from "./page.mjs";
const LINKED = { group: "with the link", name: "code that came with a link", code: "" };
export const { openings } = data, typed = kept();       // typed: {an opening's name: its changed code}
if (LINKED.name in typed) openings.push(LINKED);
export let rule = openings[0];
function kept() {                                       // in this tab, through a reload
  try { return JSON.parse(sessionStorage.typed ?? "{}"); } catch { return {}; }         // none is allowed
}
function keep() {
  $("copy").textContent = "Copy link";
  if ($("editor").value === rule.code) delete typed[rule.name];
  else typed[rule.name] = $("editor").value;
  $("original").hidden = !(rule.name in typed) || rule === LINKED;
  try { sessionStorage.typed = JSON.stringify(typed); } catch { /* then it is lost by a reload */ }
}
function paperFor(lines) {                              // the same code, but with the paper's functions
  const expected = [];
  for (let i = 0; i < lines.length; i++) {
    const [, indent, name] = lines[i].match(/^( *)def (\w+)/) ?? [], own = name && data.paper[indent + name];
    if (own) expected.push(...own.trimEnd().split("\n"));
    else if (!name) expected.push(lines[i]);
    while (own && i + 1 < lines.length && !/\S/.test(lines[i + 1].slice(0, indent.length + 1))) i++;
  }
  return expected;
}
export function compare() {                                    // [["plus" | "minus", line, its number], ..]
  const bare = line => line.split(" #")[0].trimEnd(), lines = $("editor").value.trimEnd().split("\n");
  const a = paperFor(lines).filter(bare), c = [...lines.entries()].filter(([, line]) => bare(line));
  const longest = Array.from({ length: a.length + 1 }, () => Array(c.length + 1).fill(0));
  const same = (i, j) => bare(a[i]) === bare(c[j][1]);
  for (let i = a.length; i--;) for (let j = c.length; j--;)     // the longest common part of a[i..], c[j..]
    longest[i][j] = same(i, j) ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const found = [];
  for (let i = 0, j = 0; i < a.length || j < c.length;) {
    const ended = i === a.length || j === c.length;
    if (!ended && same(i, j)) [i, j] = [i + 1, j + 1];
    else if (ended ? i < a.length : longest[i + 1][j] >= longest[i][j + 1]) found.push(["minus", a[i++]]);
    else found.push(["plus", c[j][1], c[j++][0]]);
  }
  return found;
}
function differences() {
  const lines = compare().map(([kind, line]) => el("li", kind, line));
  $("differences").replaceChildren(...lines.length ? lines : [el("li", "soft", "no line differs")]);
}
export function open(i) {
  rule = openings[i];
  $("choice").value = i;
  $("editor").value = typed[rule.name] ?? rule.code;
  const settings = [...Object.entries(rule.settings ?? {}).map(setting => setting.join(" ")),
    ...rule.penalty ? ["a penalty on repetition"] : []];
  $("about").replaceChildren(rule === LINKED ? b("Somebody else's code: read it before you run it.") : "",
    rule.claim ?? "", settings.length ? ` Judged with ${settings.join(", ")}.` : "",
    " ", rule.link ? thread(rule) : "");
  verdictIs("", "");
  keep();
  differences();
}
export function openLinked(code) {                             // code of the address: shown, and not run
  const own = typed[LINKED.name] ?? code;
  if (own !== code && !confirm("Replace the code that you changed with that of the link?")) return;
  if (!(LINKED.name in typed)) openings.push(LINKED);
  typed[LINKED.name] = code;
  listChoices();
  open(openings.indexOf(LINKED));
  $("own").scrollIntoView();
  remember();
}
export function verdictIs(kind, title, ...rest) {
  $("verdict").className = kind;
  $("verdict").replaceChildren(...title ? [el("p", "verdict", title), el("p", "", ...rest)] : []);
}
const spell = tokens => tokens.map(token => String.fromCharCode(97 + token)).join("");
export function judged(found) {
  if (found.error) return verdictIs("no", "not judged", found.error);
  const { n_unfinished, n_cases } = found, partly = n_unfinished ? " as far as it was walked" : "";
  const left = n_unfinished ? `${n_unfinished} of ${n_cases} cases were not walked to the end: up to
    ${found.unwalked.toPrecision(1)} of a case's probability may hide a mistake. In the rest, no` : "No";
  if (found.lossless) return verdictIs("yes", "lossless" + partly, ...words`${left} text's probability is
    off by more than ${found.deviation.toExponential(0)}, over
    ${many(found.n_branches, "random branch", "es")}.`);
  verdictIs("no", "not lossless", ...words`After “${spell(found.prompt)}” the text
    “${spell(found.text)}” comes with probability ${plain(found.probability)} and should come with
    ${plain(found.wanted)}${found.hint}. (The judge's models have a few tokens, written as letters.)`);
}
function listChoices() {
  $("choice").replaceChildren(...Array.from(new Set(openings.map(it => it.group)), label => {
    const options = openings.flatMap((it, i) => it.group === label ? new Option(it.name, i) : []);
    return Object.assign(el("optgroup", "", ...options), { label });
  }));
}
listChoices();
$("choice").onchange = () => { open(Number($("choice").value)); remember(); };
$("original").onclick = () => { delete typed[rule.name]; open(openings.indexOf(rule)); };
$("try").onclick = () => { if (race($("editor").value || " ")) $("race").scrollIntoView(); };
$("judge").onclick = () => {
  const { settings, penalty, disputed } = rule;
  verdictIs("", "…");
  request({ judge: { code: $("editor").value, settings, penalty, disputed } });
};
$("copy").onclick = () => copy(addressOf({ code: $("editor").value }), $("copy"));
let typing = 0;
$("editor").oninput = () => {
  clearTimeout(typing);
  keep();
  typing = setTimeout(differences, 300);
};
