// node judge_in_node.mjs PYODIDE: {files, requests} as JSON on standard input -> the answers, as JSON
import { text } from "node:stream/consumers";
const { files, requests } = JSON.parse(await text(process.stdin));
const { loadPyodide } = await import(`${process.argv[2]}/pyodide.mjs`);
const python = await loadPyodide({ indexURL: process.argv[2], stdout: () => {} });
await python.loadPackage("numpy", { messageCallback: () => {} });
for (const [path, content] of Object.entries(files)) {
  python.FS.mkdirTree("/project/" + path.split("/").slice(0, -1).join("/"));
  python.FS.writeFile("/project/" + path, content);
}
const answer = python.runPython("import sys; sys.path[:0] = ['/project']\nfrom pages.judge import answer; answer");
console.log(JSON.stringify(requests.map(request => JSON.parse(answer(JSON.stringify(request))))));
