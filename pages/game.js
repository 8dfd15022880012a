// Is this lossless?  Guess.
const { game } = data, answers = [];                    // true is "lossless"
let card = 0;
const score = () => answers.filter((answer, i) => answer === game.rules[i].lossless).length;
const plain = x => String(Number(x.toPrecision(4)));
function thread({ link, thread }) {
  const a = el("a", "", thread);
  a.href = link;
  return a;
}
function laws({ law, lossless }, answered) {            // p and q; after an answer also what the rule gives
  const rows = game.tokens.map((token, i) => [token, game.p[i], game.q[i], ...answered ? [law[i]] : []]);
  const key = el("p", "small", el("span", "p-ink", "p, for the drafts"), " · ", el("span", "q-ink",
    "q, what must come out"), answered ? el("span", "law-ink", " · law, what the rule gives") : "");
  return el("div", lossless ? "" : "wrong", key, bars(rows, ["p", "q", "law"]));
}
function verdictOn(rule, right) {
  const text = rule.text?.map(i => game.tokens[i]).join(" ");
  return [el("p", rule.lossless ? "verdict yes" : "verdict no",
    `${rule.lossless ? "Lossless" : "Not lossless"}. ${right ? "You saw it." : "It fooled you."}`),
  el("p", "", rule.reason), el("p", "", ...rule.lossless
    ? words`The judge followed ${many(rule.n_branches, "random branch", "es")}: no text is wrong.`
    : words`The judge's clearest wrong text, ${b(`“${text}”`)}, comes with probability
      ${plain(rule.probability)} and must come with ${plain(rule.wanted)}.`),
  el("p", "small soft", thread(rule), ` (${rule.date}): ${rule.claim}`)];
}
function ask(focus = true) {
  const { rules, n, n_wrong } = game, rule = rules[card], answered = answers.length > card;
  const on = !rule ? "Play again" : card + 1 < rules.length ? "Next rule" : "Your score";
  const next = button(on, "main", () => { card = rule ? card + 1 : answers.length = 0; ask(); });
  const guesses = [true, false].map(lossless =>
    button(lossless ? "Lossless" : "Not lossless", "", () => { answers[card] = lossless; ask(); }));
  const buttons = !rule || answered ? [next] : guesses;
  const code = el("ol", "code", ...rule?.code.split("\n").map(line => el("li", "", line)) ?? []);
  code.tabIndex = 0;
  const parts = !rule ? [el("p", "", ...words`A coin gets ${rules.length / 2}. The repository has ${n} such
    cases; in ${n_wrong} of them the rule is wrong.`)] : [el("p", "ask", rule.words), code,
    ...answered ? verdictOn(rule, answers[card] === rule.lossless) : []];
  const so_far = el("p", "small soft", `${answers.length} of ${rules.length} answered, ${score()} right`);
  const box = el("div", "", el("div", "", so_far, ...parts, el("div", "row", ...buttons)),
    ...rule ? [laws(rule, answered)] : []);
  box.id = "card";
  $("game").replaceChildren(box);
  if (focus) buttons[0].focus({ preventScroll: true });
}
ask(false);
