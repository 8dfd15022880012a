// Small helpers of every page.
export const $ = id => document.getElementById(id), data = JSON.parse($("data").textContent);
export const STILL = matchMedia("(prefers-reduced-motion: reduce)").matches;
export function el(tag, name, ...children) {                   // strings become text nodes, never markup
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}
export const button = (words, name, onclick) => Object.assign(el("button", name, words), { onclick });
export function bar(name, from, to) {                          // shares of the whole width
  const one = el("div", name);
  one.dataset.part = name.split(" ")[1] ?? "";
  [one.style.left, one.style.width] = [from, to - from].map(x => Math.min(100, 100 * x) + "%");
  return one;
}
export const b = (words, name = "") => el("b", name, words);
export const many = (n, word, end = "s") => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : end}`;
export const exact = x => String(x).replace(/^0\./, ".");
export const number = x => Number.isInteger(x) ? String(x) : x < .001 ? x.toExponential(1)
  : exact(x.toFixed(3));
export function words(strings, ...values) {                    // words`p = ${.25}` -> ["p = ", ".250", ..]
  const shown = value => typeof value === "number" ? number(value) : value ?? "";
  return strings.flatMap((text, i) => [text, shown(values[i])]);
}
export const seen = text => JSON.stringify(text).slice(1, -1).replace(/\\\\/g, "\\").replace(/ /g, "·");
export const quoted = text => `“${text.trim() || seen(text)}”`;

// Words and parts of a picture light each other: [data-part] and .bar, with the pointer or the focus.
export function part(name, text, look = "") {
  const one = Object.assign(el("span", `part ${look}`, text), { tabIndex: 0 });
  one.dataset.part = name;
  return one;
}
const partOf = one => one.closest?.("[data-part]")?.dataset.part;
for (const event of ["pointerover", "focusin"]) addEventListener(event, ({ target }) => {
  const name = partOf(target);
  for (const one of document.querySelectorAll("[data-part]"))
    one.classList.toggle("lights", Boolean(name) && partOf(one) === name);
  document.body.classList.toggle("lighting", Boolean(name));
});
