// Checks a package as npm would publish it: node scripts/published.mjs TARBALL. publint looks for errors of
// package.json, and arethetypeswrong compares the types with the modules, as ES module and as CommonJS.
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { readFileSync } from "node:fs";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

const tarball = readFileSync(process.argv[2]);
const problems = [];

const { messages, pkg } = await publint({ pack: { tarball: new Uint8Array(tarball).buffer }, strict: true });
for (const m of messages) problems.push(`publint: ${formatMessage(m, pkg, { color: false })}`);

const types = await checkPackage(createPackageFromTarballData(new Uint8Array(tarball)));
if (!types.types) problems.push("arethetypeswrong: the package has no types");
// Node 10 knows no "exports"; engines excludes it.
for (const p of types.problems ?? []) {
  if (p.resolutionKind !== "node10") problems.push(`arethetypeswrong: ${JSON.stringify(p)}`);
}

for (const p of problems) console.error(p);
process.exitCode = problems.length > 0 ? 1 : 0;
