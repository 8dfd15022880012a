// Why the distribution is unchanged, in one picture.  p can be dragged: green and hatched still add up to q.
import { sum } from "./formula.mjs";
import { $, b, bar, data, el, exact, number, part, words } from "./dom.mjs";
const drafted = [...data.game.p], plain = x => String(Number(x.toPrecision(4)));
function setDrafted(i, x) {                             // the other tokens share the rest as before
  const rest = 1 - drafted[i], share = (1 - x) / (rest || 1);
  drafted.forEach((old, j) => { drafted[j] = j === i ? x : rest ? old * share : (1 - x) / 3; });
  prove();
}
function prove() {                                      // for each token, what a kept and a new one add up to
  for (const [i, box] of [...$("proof").querySelectorAll(".one")].entries()) {
    const [p, q] = [drafted[i], data.game.q[i]], kept = Math.min(p, q), most = .6;
    box.querySelector("input").value = p;
    box.querySelector(".stack").replaceChildren(bar("bar law", 0, kept / most),
      bar("bar lack", kept / most, q / most));
    box.lastChild.replaceChildren(...words`p ${p}: kept ${b(number(kept), "law-ink")} + new ${
      b(number(q - kept), "q-ink")} = ${b("q", "q-ink")} ${exact(plain(q))}`);
  }
  const z = sum([...drafted.entries()], ([i, p]) => Math.max(data.game.q[i] - p, 0));
  $("rejected").replaceChildren(...words`A draft is rejected as often as the hatched parts add up to, ${
    b(number(z))}. Then each token comes in proportion to its hatched part.`);
}
$("proof").append(...data.game.tokens.map((token, i) => {
  const slider = Object.assign(el("input"), { type: "range", min: 0, max: .6, step: .01,
    oninput: ({ target }) => setDrafted(i, Number(target.value)) });
  slider.ariaLabel = `p of ${token}`;
  return el("div", "one", el("span", "word", token), el("div", "pair", slider, el("div", "stack")),
    el("span", "nums"));
}), el("p", "small", part("p", "p, what is drafted: drag it", "p-ink"), " · ", part("law",
  "min(p, q), the kept drafts", "law-ink"), " · ", part("lack", "hatched: (q − p)₊, the new tokens", "q-ink"),
". ", Object.assign(el("span"), { id: "rejected" })));
prove();

export { drafted, plain, prove };
