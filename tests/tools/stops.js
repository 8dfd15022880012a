// Goes from the opened round's line to the last of the run, and says what is to be seen at each.
const seen = [], texts = selector => [...document.querySelectorAll(selector)].map(one => one.textContent);
for (;;) {
  seen.push({ ...s.stops[s.at], place: $("place").textContent, paper: $("paper").textContent,
    said: $("words").textContent.replace(/\s+/g, " "), lit: texts("#source .lit"), nums: texts("#picture .nums"),
    needle: !$("needle").hidden && $("needle").style.visibility !== "hidden", shown: $("round").textContent,
    marks: ["--ratio", "--r"].map(key => parseFloat($("needle").style.getPropertyValue(key))) });
  if ($("r-next").disabled) return seen;
  $("r-next").click();
}
