import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { start } from "./kit.js";

const is = (code: string) => (e: unknown) => e instanceof BelayError && e.code === code;

const text = (word: string) => `name: nightly
tasks:
  - id: hello
    uses: command
    with: {run: [echo, "${word}"]}
`;

test("documents are applied, compared, deprecated and removed", async (t) => {
  const belay = new Belay({ url: (await start(t)).url });
  const { documents } = belay;
  const why = { actor: "ann", reason: "a move" };
  const first = await documents.apply("nightly", text("one"), { ...why, if: { none: true } });
  assert.deepEqual([first.version, first.created, first.created_by], [1, true, "ann"]);
  assert.equal((await documents.apply("nightly", text("one"))).created, false);
  await assert.rejects(documents.apply("nightly", text("two"), { if: { none: true } }), is("conflict"));
  await assert.rejects(documents.apply("nightly", text("two"), { if: { version: 2 } }), is("conflict"));
  await assert.rejects(documents.apply("nightly", "name: nightly\ntasks: 1\n"), is("invalid"));
  await assert.rejects(documents.apply("weekly", text("one")), is("invalid"));
  assert.equal((await documents.apply("nightly", text("two"), { if: { version: 1 } })).version, 2);
  assert.equal((await documents.get("nightly")).text, text("two"));
  assert.equal((await documents.get("nightly", 1)).text, text("one"));
  assert.match((await documents.diff("nightly")).diff, /^-.*one[^]*^\+.*two/m);
  assert.match(await documents.graph("nightly", 1, "mermaid"), /flowchart/);
  assert.equal((await documents.deprecate("nightly", 2, why)).deprecated?.by, "ann");
  assert.equal((await documents.list()).documents[0]?.default, 1);
  const execution = await belay.submitDocument("nightly", { idempotency_key: "day-7" });
  assert.deepEqual([execution.workflow, execution.labels?.["document_version"]], ["document", "1"]);
  assert.equal((await documents.restore("nightly", 2)).deprecated, undefined);
  assert.equal((await belay.submitDocument("nightly", { idempotency_key: "day-7" })).id, execution.id);
  assert.equal((await belay.submitDocument("nightly@2")).labels?.["document_version"], "2");
  await documents.remove("nightly", 1, why);
  assert.equal((await documents.versions("nightly")).versions.length, 1);
  await documents.remove("nightly");
  await assert.rejects(documents.get("nightly"), is("not_found"));
});
