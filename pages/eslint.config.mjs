// npx eslint@9.39.1 -c pages/eslint.config.mjs pages
const browser = `Blob Event Option TransformStream URL URLSearchParams Worker Response addEventListener confirm
  dispatchEvent document history importScripts loadPyodide location matchMedia navigator performance postMessage
  onmessage requestAnimationFrame clearTimeout scrollTo self sessionStorage setTimeout`.split(/\s+/);
const rules = `array-callback-return eqeqeq no-cond-assign no-const-assign no-dupe-args no-dupe-else-if no-dupe-keys
  no-duplicate-imports no-empty no-empty-pattern no-import-assign no-loss-of-precision no-redeclare no-self-assign
  no-self-compare no-sparse-arrays no-undef no-unreachable no-unused-expressions no-unused-vars no-useless-escape
  no-var prefer-const use-isnan`.split(/\s+/);
const all = (names, value) => Object.fromEntries(names.map(name => [name, value]));
export default [{ files: ["**/*.mjs"], rules: all(rules, "error"),
  languageOptions: { ecmaVersion: 2024, globals: all(browser, "writable") } }];
