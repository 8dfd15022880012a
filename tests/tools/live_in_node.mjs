// node live_in_node.mjs PYODIDE: {zips, races, judged} as JSON on standard input -> {races, judged}, as JSON
import { text } from "node:stream/consumers";
const { zips, races, judged } = JSON.parse(await text(process.stdin));
const { loadPyodide } = await import(`${process.argv[2]}/pyodide.mjs`);
const python = await loadPyodide({ indexURL: process.argv[2], stdout: () => {} });
await python.loadPackage(["numpy", "regex"], { messageCallback: () => {} });
for (const zip of zips)
  python.unpackArchive(Uint8Array.from(Buffer.from(zip, "base64")), "zip", { extractDir: "/project" });
const live = python.runPython(
  "import os, sys; os.chdir('/project'); sys.path[:0] = ['/project']; from pages.live import Live; Live()");
function raced(settings) {
  live.start(JSON.stringify(settings));
  const rounds = [];
  for (let round; (round = JSON.parse(live.advance('{"lane": "spec"}'))) !== null;) rounds.push(round);
  return rounds;
}
console.log(JSON.stringify({ races: races.map(raced),
  judged: judged.map(code => JSON.parse(live.judge(JSON.stringify({ code })))) }));
