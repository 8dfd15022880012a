// Is this lossless?  Guess.
import { $, b, button, data, el, many, words } from "./dom.mjs";
import { bars } from "./round.mjs";
import { plain } from "./why.mjs";
const { game } = data, answers = [];                    // true is "lossless"
let card = 0, dealt = [];
const score = () => answers.filter((answer, i) => answer === dealt[i].lossless).length;
const thread = ({ link, thread }) => Object.assign(el("a", "", thread), { href: link });
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
  const all = code ? Object.assign(el("a", "", `all ${game.n} cases`), { href: `${code}/blob/main/${file}` })
    : el("span", "", `all ${game.n} cases (in ${file})`);
  return [el("p", "verdict", told), el("p", "", ...words`Guessing gets ${dealt.length / 2}. Of ${all} of the
    repository, ${game.n_wrong} are not lossless.`), el("ol", "", ...dealt.map((rule, i) => el("li", "",
    answers[i] === rule.lossless ? "✓ " : "✗ ", thread(rule))))];
}
function copy(text, where) {                            // to the clipboard, where there is one
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
function deal(focus, mixed = true) {                    // not mixed: as in game.ini, whose first rule is wrong
  const order = game.rules.map((rule, i) => [mixed ? Math.random() : i, rule]).sort(([a], [b]) => a - b);
  [card, answers.length, dealt] = [0, 0, order.map(([, rule]) => rule)];
  ask(focus);
}
deal(false);

export { answers, copy, deal, game, thread };
