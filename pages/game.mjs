// Why the distribution is unchanged, in one picture; and: is this lossless?  Guess.
import { sum } from "./formula.mjs";
import { $, b, bar, button, data, el, exact, many, number, part, words } from "./dom.mjs";
import { bars } from "./round.mjs";
// p can be dragged: green and hatched still add up to q --------------------------------------------------
export const drafted = [...data.game.p], plain = x => String(Number(x.toPrecision(4)));
function setDrafted(i, x) {                             // the other tokens share the rest as before
  const rest = 1 - drafted[i], to = (p, j) => j === i ? x : rest ? p * (1 - x) / rest : (1 - x) / 3;
  drafted.forEach((p, j) => { drafted[j] = Number(to(p, j).toFixed(9)); });
  prove();
}
export function prove() {                               // for each token, what a kept and a new one add up to
  for (const [i, box] of [...$("proof").querySelectorAll(".one")].entries()) {
    const [p, q] = [drafted[i], data.game.q[i]], kept = Math.min(p, q), most = .6;
    box.querySelector("input").value = p;
    box.querySelector(".stack").replaceChildren(bar("bar law", 0, kept / most),
      bar("bar lack", kept / most, q / most));
    box.lastChild.replaceChildren(...words`p ${p}: kept ${b(number(kept), "law-ink")} + new ${
      b(number(Math.max(0, q - p)), "q-ink")} = ${b("q", "q-ink")} ${exact(plain(q))}`);
  }
  const z = sum([...drafted.entries()], ([i, p]) => Math.max(data.game.q[i] - p, 0));
  $("rejected").replaceChildren(...words`A draft is rejected as often as the hatched parts add up to, ${
    b(number(z))}. Then each token comes in proportion to its hatched part.`);
}
$("proof").append(...data.game.tokens.map((token, i) => {
  const slider = Object.assign(el("input"), { type: "range", max: .6, step: .01, ariaLabel: `p of ${token}`,
    oninput: () => setDrafted(i, Number(slider.value)) });
  return el("div", "one", el("span", "word", token), el("div", "pair", slider, el("div", "stack")),
    el("span", "nums"));
}), el("p", "small", part("p", "p, what is drafted: drag it", "p-ink"), " · ", part("law",
  "min(p, q), the kept drafts", "law-ink"), " · ", part("lack", "hatched: (q − p)₊, the new tokens",
  "q-ink"), ". ", Object.assign(el("span"), { id: "rejected" })));
prove();

// The rules, in a new order each time ---------------------------------------------------------------------
export const { game } = data, answers = [];                    // true is "lossless"
export let card = 0, dealt = [];
const score = () => answers.filter((answer, i) => answer === dealt[i].lossless).length;
export const thread = ({ link, thread }) => Object.assign(el("a", "", thread), { href: link });
function laws({ law, lossless }, answered) {            // p and q; after an answer also what the rule gives
  const rows = game.tokens.map((token, i) => [token, game.p[i], game.q[i], ...answered ? [law[i]] : []]);
  const key = el("p", "small", el("span", "p-ink", "p, for the drafts"), " · ", el("span", "q-ink",
    "q, what must come out"), answered ? el("span", "law-ink", " · law, what the rule gives") : "");
  return el("div", lossless ? "" : "wrong", key, bars(rows, ["p", "q", "law"]));
}
function verdictOn(rule, right) {
  const text = rule.text?.map(i => game.tokens[i]).join(" "), said = right ? "You saw it." : "It fooled you.";
  const title = rule.lossless ? el("p", "verdict yes", "Lossless. ", said)
    : el("p", "verdict no", "Not lossless. ", said);
  title.tabIndex = -1;
  return [title, el("p", "", rule.reason), el("p", "", ...rule.lossless
    ? words`The judge followed ${many(rule.n_branches, "random branch", "es")}: no text is wrong.`
    : words`The judge's clearest wrong text, ${b(`“${text}”`)}, comes with probability
      ${plain(rule.probability)} and should come with ${plain(rule.wanted)}.`),
  el("p", "small soft", thread(rule), ` (${rule.date}): ${rule.claim}`)];
}
function summary() {                                    // what was right
  const told = `I got ${score()} of ${dealt.length} accept rules right.`;
  const code = $("top").querySelectorAll("p a")[2]?.href, file = "lossless/verdicts/README.md";
  const all = code ? thread({ thread: `all ${game.n} cases`, link: `${code}/blob/main/${file}` })
    : `all ${game.n} cases (in ${file})`;
  return [el("p", "verdict", told), el("p", "", ...words`Guessing gets ${dealt.length / 2}. Of ${all} of the
    repository, ${game.n_wrong} are not lossless.`), el("ol", "", ...dealt.map((rule, i) => el("li", "",
    answers[i] === rule.lossless ? "✓ " : "✗ ", thread(rule))))];
}
export function copy(text, where) {                            // to the clipboard, where there is one
  const said = done => { where.textContent = done ? "Copied" : "Not copied: no clipboard here"; };
  (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(() => said(true), () => said(false));
}
function ask(focus = true) {
  const rule = dealt[card], answered = answers.length > card;
  const on = !rule ? "Play again" : card + 1 < dealt.length ? "Next rule" : "Your score";
  const next = button(on, "main", () => { if (rule) { card++; ask(); } else deal(true); });
  const guesses = [true, false].map(lossless =>
    button(lossless ? "Lossless" : "Not lossless", "", () => { answers[card] = lossless; ask(); }));
  const buttons = !rule || answered ? [next] : guesses;
  const code = el("ol", "code", ...rule?.code.split("\n").map(line => el("li", "", line)) ?? []);
  code.tabIndex = 0;
  const parts = !rule ? summary() : [el("p", "ask", rule.words), code,
    ...answered ? verdictOn(rule, answers[card] === rule.lossless) : []];
  const so_far = el("p", "small soft", `${answers.length} of ${dealt.length} answered, ${score()} right`);
  const box = el("div", "", el("div", "", so_far, ...parts, el("div", "row", ...buttons)),
    ...rule ? [laws(rule, answered)] : []);
  box.id = "card";
  $("game").replaceChildren(box);
  if (focus) (box.querySelector(".verdict") ?? buttons[0]).focus({ preventScroll: true });
}
export function deal(focus, mixed = true) {            // not mixed: as in game.ini, whose first rule is wrong
  const order = game.rules.map((rule, i) => [mixed ? Math.random() : i, rule]).sort(([a], [b]) => a - b);
  [card, answers.length, dealt] = [0, 0, order.map(([, rule]) => rule)];
  ask(focus);
}
deal(false);
