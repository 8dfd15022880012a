// Python, in a worker of its own.
import { passCost, sum } from "./formula.mjs";
import { $, STILL, data } from "./dom.mjs";
import { cellOf, choose, lay, names, play, runs, s, use } from "./race.mjs";
import { compare, judged, verdictIs } from "./rule.mjs";
import { KEYS, race } from "./page.mjs";
function inside() {                                     // becomes the worker's program
  let live = null, ready = null, stopped = 0, queue = Promise.resolve(), loaded = 0;
  const plainly = self.fetch, counting = () => new TransformStream({ transform(part, out) {
    loaded += part.length;
    postMessage({ loaded });
    out.enqueue(part);
  } });
  self.fetch = async (...what) => {
    const response = await plainly(...what);
    return new Response(response.body.pipeThrough(counting()), response);
  };
  async function fetched({ file, sha256 }, home, cache = "default") {
    const response = await self.fetch(`${home}${file}?${sha256.slice(0, 16)}`, { cache }).catch(() => null);
    if (response?.ok) return response.arrayBuffer();
    throw Error(`${file} could not be downloaded (${response?.status ?? "no network"}): try again later.`);
  }
  async function load({ base, home, packs }) {
    const files = packs.map(pack => fetched(pack, home));
    files.forEach(file => file.catch(() => null));      // a failure is reported below, where it is awaited
    try { importScripts(base + "pyodide.js"); } catch {
      throw Error(`Python could not be loaded from ${base}: is there a network, and is it allowed?`);
    }
    const python = await loadPyodide({ indexURL: base });
    await python.loadPackage(["numpy", "regex"], { messageCallback: () => {} });
    const hash = python.runPython("import hashlib\n"
      + "lambda file: hashlib.sha256(file.to_memoryview()).hexdigest()");
    for (const [i, pack] of packs.entries()) {          // a damaged copy leaves the browser's cache
      let file = await files[i];
      if (hash(file) !== pack.sha256) file = await fetched(pack, home, "reload");
      if (hash(file) !== pack.sha256) throw Error(`${pack.file} is damaged, or newer: load this page again.`);
      python.unpackArchive(file, "zip", { extractDir: "/project" });
    }
    live = python.runPython("import os, sys, shutil; os.chdir('/project'); sys.path[:0] = ['/project']\n"
      + "from engine.compute import threads; threads.ARENA = 2 ** 22\n"      // here even unused memory counts
      + "from pages.live import Live; live = Live(); shutil.rmtree('models/demo-target'); live");
  }
  async function run(id, race) {
    const began = JSON.parse(live.start(JSON.stringify(race))), lanes = began.error ? [] : ["alone", "spec"];
    postMessage({ id, began });
    while (lanes.length && stopped < id) for (const lane of [...lanes]) {
      const round = JSON.parse(live.advance(JSON.stringify({ lane })));
      if (round) postMessage({ id, lane, round });
      if (!round || round.error) lanes.splice(lanes.indexOf(lane), 1);
      await new Promise(go => setTimeout(go));          // hears "stop"
    }
    if (!began.error && !race.code) postMessage({ id, costs: JSON.parse(live.costs()) });
  }
  async function handle({ id, needs, race, judge }) {
    try {
      await (ready ??= load(needs));                    // one that failed fails again, in the same words
      if (judge) {
        let shown = 0;
        live.progress = share => {                      // ten times a second
          if (Date.now() > shown + 100) postMessage({ id, share, at: shown = Date.now() });
        };
        postMessage({ id, verdict: JSON.parse(live.judge(JSON.stringify(judge))) });
      }
      if (race) await run(id, race);
      postMessage({ id, done: true });
    } catch (error) {
      const words = String(error.message ?? error).trim().split("\n").pop();
      const full = "There is too little memory for Python and the models: close other pages.";
      postMessage({ id, failed: /memory|allocat|RangeError/i.test(words) ? full : words });
    }
  }
  onmessage = ({ data }) => {
    if (data.stop) stopped = data.id;
    else queue = queue.then(() => handle(data));
  };
}

export const SIZE = sum(data.packs, pack => pack.size) + data.python_size;     // bytes
let worker = null, asked = 0, asking = {}, busy = false, mine = null, wanted = false;
const here = data.presets.at(-1);                       // "this browser"; wanted: its costs were asked for
export function request(what) {                                // {race} or {judge}
  if (location.protocol === "file:") return fail("This page was opened as a file, which cannot fetch the "
    + "models: run python -m http.server -d site and open http://localhost:8000.");
  const needs = { base: data.base, packs: data.packs, home: new URL(".", location.href).href };
  worker ??= new Worker(URL.createObjectURL(new Blob([`(${inside})()`], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => heard(data);
  fail("");
  asking = what;
  $(what.judge ? "own-bar" : "bar").append($("busy"));
  working(true);
  worker.postMessage({ id: ++asked, ...what, needs });
}
function working(on) {
  [busy, $("stop").hidden] = [on, !on];
  for (const id of ["run", "try", "judge"]) $(id).disabled = on;
  progress(0, "", true);
}
function progress(share, words, hidden = false) {
  [$("progress").value, $("status").textContent, $("progress").hidden] = [share, words, hidden];
}
function fail(text) { [$("error").textContent, $("error").hidden] = [text, !text]; }
function over(stopped) {                                // your run has ended, or was stopped
  if (!mine || mine.over) return;
  Object.assign(mine, { over: true, stopped });
  if (s.run !== mine) return;
  if (STILL || stopped) s.now = Infinity;
  lay();
}
function endWorker() {                                  // with all that it has loaded
  worker.terminate();
  worker = null;
  working(false);
}
$("stop").onclick = () => {                             // code that does not listen is ended
  const id = asked;
  over(true);
  verdictIs("", "");
  worker.postMessage({ id, stop: true });
  setTimeout(() => busy && id === asked && endWorker(), 700);
};
function heard({ id, loaded, failed, began, lane, round, costs, verdict, share, done }) {
  if (loaded && busy) {
    const [part, all] = [Math.min(loaded, SIZE), SIZE].map(bytes => Math.round(bytes / 1e6));
    progress(loaded / SIZE, `Python and models: ${part} of ${all} MB`);
  }
  if (id !== asked) return;
  const wrong = failed ?? began?.error ?? round?.error ?? costs?.error;
  if (wrong) over(true);
  if (wrong) (asking.judge ? error => judged({ error }) : fail)(wrong);
  else if (began) enter(began);
  else if (round) {
    Object.assign(names, round.names);
    mine[lane].push(round);
    if (s.run === mine) lay();
  } else if (costs) measured(costs);
  else if (verdict) judged(verdict);
  else if (share) progress(share, "Following every possible outcome.");
  else if (done) {
    working(false);
    if (asking.race) over(false);
  }
  if (failed) endWorker();
}
function enter(about) {                                 // your run takes the place of what is shown
  const edited = about.sources.find(source => source.file === "<editor>");
  if (edited) edited.differs = compare().flatMap(([kind, , n]) => kind === "plus" ? n : []);
  mine = { settings: asking.race, about, alone: [], spec: [], over: false };
  runs.splice(0, runs.length, ...runs.filter(one => one.recorded), mine);
  choose(mine);
  play(true);
}
export function measureHere() {                         // this browser's costs of the run that is shown
  for (const key of KEYS) $(key).value = s.run.settings[key];
  wanted = race();
}
function measured(costs) {
  if (costs.c === null || costs.v === null) return;
  here.c[cellOf(mine)] = costs.c;
  here.v = Array.from({ length: 16 }, (_, i) => passCost(i + 1, mine.about.most, costs.v));
  if ((wanted || s.preset === here) && s.run === mine) use(here);
  wanted = false;
}
