// Runs the tests in a page, and reports the outcomes to the program that serves the page.
import { ask } from "./kit.js";
import { runAll } from "./test.js";

try {
  const { files } = await ask<{ files: string[] }>({ op: "files" });
  for (const file of files) await import(file);
  await runAll(
    (name) => ask({ op: "begun", name }),
    (name, error) => ask({ op: "over", name, error }),
  );
} catch (err) {
  await ask({ op: "over", name: "load the tests", error: String(err) });
}
await ask({ op: "done", secure: isSecureContext });
