// What is to be seen at a stop of the tour (tests/test_live.py runs it in the page).
const on = [...document.querySelectorAll("main > .on")], page = document.documentElement;
const least = one => one.closest(".code, .nums, .word, #editor") ? 45.1 : 40.1;         // of the height
const texts = [...document.querySelectorAll("#guide *, .on *")].filter(one => one.offsetParent
  && !one.closest("[inert], svg") && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
const bottom = Math.max(...[...document.querySelectorAll(".on, .on *")].filter(one => one.offsetParent)
  .map(one => one.getBoundingClientRect().bottom));
return {
  parts: on.filter(one => !one.inert).length, shown: on[0].innerText + on[0].id + s.stops[s.at].kind,
  width: page.scrollWidth, height: page.scrollHeight, full: bottom / innerHeight,
  small: texts.filter(one => innerHeight / parseFloat(getComputedStyle(one).fontSize) > least(one))
    .map(one => one.outerHTML),
  hatched: [...document.querySelectorAll(".on .bar.left")].some(one => one.offsetWidth) && s.stops[s.at].kind,
};
