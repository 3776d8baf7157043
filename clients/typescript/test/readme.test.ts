import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { shared } from "./kit.js";

// The programs use await outside of functions, which CommonJS does not have.
const folder = join(dirname(process.argv[1]!), "../esm/readme");

/** The output of the programs of README.md, where it matters. */
const outputs: Record<string, RegExp> = {
  charge: /receipt r-881\nsucceeded \{ receipt: 'r-881' \}\n$/,
  approve: /^\{ refunded: 20, by: 'ann' \}\n$/,
  watch: /^1 submitted\n2 cancel\n$/,
  follow: /^begin true\npending cancelled false\n$/,
  many: /^(ex_\w+ cancelled\n){3}$/,
  agent: /^say hello\ncompleted\nsay hello/,
  outside: /^$/,
  gates: /^queue:reports it is paused\n$/,
  documents: /^1 1\n$/,
  schedules: /^20\d\d-\d\d-\d\dT0[01]:00:00Z\nstarted ex_\w+\n$/,
  webhooks: /^started ex_\w+\n\[\s+\{\s+webhook: 'ship',\s+outcome: 'started',\s+execution: 'ex_\w+'\s+\}\s+\]\n$/,
  notifications: /^failed the secret SLACK_URL is not allowed [^\n]+\n$/,
  workers: /^\d+\n$/,
};

for (const file of readdirSync(folder).filter((f) => f.endsWith(".js"))) {
  const name = file.replace(/\.js$/, "");
  test(`the program ${name} of README.md runs as it stands`, async () => {
    const env = { ...process.env, BELAY_URL: await shared() };
    const { stdout } = await promisify(execFile)(process.execPath, [join(folder, file)], { env, timeout: 60_000 });
    assert.ok(outputs[name], "the test does not know its output");
    assert.match(stdout, outputs[name]);
  });
}
