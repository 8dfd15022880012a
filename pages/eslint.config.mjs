// npx eslint@9.39.1 -c pages/eslint.config.mjs pages
const browser = `Blob Event Option Response TransformStream URL URLSearchParams Worker addEventListener
  cancelAnimationFrame clearTimeout confirm dispatchEvent document history importScripts loadPyodide location
  matchMedia navigator onmessage performance postMessage requestAnimationFrame scrollTo self sessionStorage
  setTimeout`.split(/\s+/);
const rules = `array-callback-return eqeqeq no-cond-assign no-const-assign no-dupe-else-if no-dupe-keys
  no-empty no-import-assign no-redeclare no-self-assign no-self-compare no-undef no-unreachable
  no-unused-expressions no-unused-vars no-useless-escape no-var prefer-const use-isnan`.split(/\s+/);
const all = (names, value) => Object.fromEntries(names.map(name => [name, value]));
export default [{ rules: all(rules, "error"), languageOptions: { globals: all(browser, "writable") } }];
