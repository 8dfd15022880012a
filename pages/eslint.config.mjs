// npx eslint@9.39.1 -c pages/eslint.config.mjs pages
const browser = ["AbortController", "Blob", "Event", "Option", "TransformStream", "URL", "URLSearchParams", "Worker",
  "Response", "addEventListener", "confirm", "dispatchEvent", "document", "history", "importScripts", "innerHeight",
  "innerWidth", "loadPyodide", "location", "matchMedia", "navigator", "performance", "postMessage", "onmessage",
  "requestAnimationFrame", "clearTimeout", "scrollTo", "self", "sessionStorage", "setTimeout"];
const rules = ["array-callback-return", "constructor-super", "eqeqeq", "no-cond-assign", "no-const-assign",
  "no-dupe-args", "no-dupe-else-if", "no-dupe-keys", "no-duplicate-imports", "no-empty", "no-empty-pattern",
  "no-import-assign", "no-loss-of-precision", "no-redeclare", "no-self-assign", "no-self-compare",
  "no-shadow-restricted-names", "no-sparse-arrays", "no-undef", "no-unreachable", "no-unused-expressions",
  "no-unused-vars", "no-useless-escape", "no-var", "prefer-const", "use-isnan"];
export default [{
  files: ["**/*.mjs"],
  linterOptions: { reportUnusedDisableDirectives: true },
  languageOptions: { ecmaVersion: 2024, globals: Object.fromEntries(browser.map(name => [name, "writable"])) },
  rules: Object.fromEntries(rules.map(name => [name, "error"])),
}];
