// When is it not faster?  The formula over K, and where the race stands.
import { acceptance, expected, speedup, stretched } from "./formula.mjs";
import { $, b, words } from "./dom.mjs";
import { SAID, isTree, ruleOf, s, shape, watchers } from "./race.mjs";
const checking = rows => stretched(shape, rows, s.run.about.most, s.v);
const predicted = (alpha, K) => expected(alpha, K) / (K * s.c + checking(K + 1));
function whyNot() {                                     // the theorem is not about this run
  const { spec, alone, about: { n_drafting }, settings } = s.run, rule = ruleOf(s.run);
  let left = settings.n_tokens ?? alone.length;         // the last rounds have room for fewer drafts
  const full = spec.every(r => (left -= r.tokens.length) < n_drafting || r.depth === n_drafting);
  return isTree(s.run) ? "In a tree, levels are accepted or not, each with several drafts."
    : !SAID.one_by_one.includes(rule) ? `Here the rule is ${rule}: α is for drafts judged one by one.`
    : full ? "" : "Here a round does not always have K drafts.";
}
function curve() {
  if (s.what.run !== s.run) s.what = { run: s.run };    // alpha, K: as the dials say; else those of the race
  const not = whyNot();
  $("whats").hidden = Boolean(not);
  $("when-not").textContent = not && `${not} So the formula does not predict this race: ${s.run.spec.length
    ? speedup(s.run, s.c, s.v).toFixed(2) : ""}.`;
  if (not) return;
  const [accepted, tested] = acceptance(s.run), race = Math.min(15, s.run.about.n_drafting);
  const alpha = s.what.alpha ?? Number((accepted / tested || 0).toFixed(2)), K = s.what.K ?? race;
  const all = Array.from({ length: 15 }, (_, i) => predicted(alpha, i + 1)), best = Math.max(...all);
  const raced = s.run.spec.length ? speedup(s.run, s.c, s.v) : 0, top = Math.max(1.5, best, raced) * 1.12;
  const x = K => 40 + 36 * K, y = speed => 200 - 190 * speed / top;
  const dot = (K, speed, name) => `<circle cx="${x(K)}" cy="${y(speed)}" r="6" class="${name}"/>`;
  const text = (x, y, words, name = "") => `<text x="${x}" y="${y}" class="${name}">${words}</text>`;
  $("curve").innerHTML = `<path class="even" d="M40 ${y(1)}H592"/>
    ${text(44, y(1) - 5, "1: the large model alone")}${text(2, 20, "times as fast")}
    <polyline class="line" points="${all.map((speed, i) => [x(i + 1), y(speed)]).join(" ")}"/>
    ${text(2, 220, "K =")}${all.map((_, i) => i % 2 ? "" : text(x(i + 1), 220, i + 1, "K")).join("")}
    ${dot(K, all[K - 1], "f-q")}${dot(race, raced, "raced")}
    ${text(x(race) + 10, y(raced) - 8, "the race", "here")}`;
  [$("alpha").value, $("drafts").value] = [alpha, K];
  [$("alpha-is").textContent, $("drafts-is").textContent] = [`α = ${alpha.toFixed(2)}`, `K = ${K}`];
  $("when-words").replaceChildren(...words`K = ${K}: ${expected(alpha, K).toFixed(2)} tokens ÷
    ${(expected(alpha, K) / all[K - 1]).toFixed(2)} steps = ${b(all[K - 1].toFixed(2))}. ${best < 1
    ? b("Not faster with any K.") : `K = ${all.indexOf(best) + 1} is best: ${best.toFixed(2)}.`} The race
    itself: ${raced.toFixed(2)}. (A pass over ${K + 1} tokens costs ${checking(K + 1).toFixed(2)} steps.)`);
}
for (const [id, key] of [["alpha", "alpha"], ["drafts", "K"]])
  $(id).oninput = () => { s.what[key] = Number($(id).value); curve(); };
watchers.push(curve);
