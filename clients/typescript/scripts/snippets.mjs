// Writes the programs of a page to a folder: node scripts/snippets.mjs PAGE FOLDER. A block of TypeScript that follows
// <!-- program: NAME --> is a program; its server is that of the environment variable BELAY_URL.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [page, folder] = process.argv.slice(2);
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const text = readFileSync(page, "utf8");
const programs = [...text.matchAll(/^<!-- program: (\S+) -->\n```ts\n(.*?)^```$/gms)];
const blocks = text.match(/^```ts$/gm) ?? [];
if (programs.length !== blocks.length)
  throw new Error(`${page} has ${blocks.length} blocks of ts and ${programs.length} programs`);
for (const [, name, code] of programs) {
  writeFileSync(join(folder, `${name}.ts`), code.replaceAll('"http://127.0.0.1:7420"', 'process.env["BELAY_URL"]!'));
}
