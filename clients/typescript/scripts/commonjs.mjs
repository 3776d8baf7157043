// Makes CommonJS modules of ES modules: node scripts/commonjs.mjs FROM TO. The files keep their names; a package.json
// in TO says that they are CommonJS. Declarations are copied: their imports mean the same in both forms.
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";

const [from, to] = process.argv.slice(2);
const compilerOptions = { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022, esModuleInterop: true };

rmSync(to, { recursive: true, force: true });
for (const name of readdirSync(from, { recursive: true })) {
  const file = join(to, name);
  if (name.endsWith(".js")) {
    const { outputText } = ts.transpileModule(readFileSync(join(from, name), "utf8"), {
      compilerOptions,
      fileName: name,
    });
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, outputText);
  } else if (name.endsWith(".d.ts")) {
    mkdirSync(dirname(file), { recursive: true });
    cpSync(join(from, name), file);
  }
}
writeFileSync(join(to, "package.json"), JSON.stringify({ type: "commonjs" }) + "\n");
