import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { start } from "./kit.js";

const is = (code: string) => (e: unknown) => e instanceof BelayError && e.code === code;

test("dead letters are read, noted, requeued with a patch and resolved once", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const { dead } = belay;
  const { id } = await belay.submit("charge", { input: { n: 1, url: "x" } });
  await assert.rejects(dead.get(id), is("not_found"));
  const given = await fetch(`${url}/v1/executions/${id}/quarantine`, { method: "POST" });
  assert.equal(given.status, 200);
  const letter = await dead.get(id);
  assert.deepEqual([letter.reason, letter.generation, letter.state], ["manual", 1, "failed"]);
  assert.deepEqual(letter.input, { n: 1, url: "x" });
  const page = await dead.list({ workflow: "charge", reason: "manual" });
  assert.deepEqual(
    page.dead_letters.map((d) => d.execution),
    [id],
  );
  assert.deepEqual(
    (await dead.groups()).groups.map((g) => [g.fingerprint, g.count]),
    [[letter.fingerprint, 1]],
  );
  assert.deepEqual(
    (await dead.note(id, "asked the bank", { actor: "ann" })).notes?.map((n) => [n.by, n.text]),
    [["ann", "asked the bank"]],
  );
  const again = await dead.requeue(id, { patch: { url: null, n: 2 }, notes: "wrong url", actor: "ann" });
  assert.deepEqual([again.resolution, again.execution.generation, again.execution.state], ["requeued", 2, "pending"]);
  assert.deepEqual(again.execution.input, { n: 2 });
  await assert.rejects(dead.discard(id), is("conflict"));
  await assert.rejects(dead.fix(id, { generation: 7 }), is("not_found"));
  assert.equal((await dead.list()).dead_letters.length, 0);
});

test("a bulk is previewed, and acts on what its filter selects", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const ids: string[] = [];
  for (let n = 0; n < 3; n++) ids.push((await belay.submit("charge", { input: { n } })).id);
  await assert.rejects(belay.bulk.start("cancel", {}), is("invalid"));
  await assert.rejects(belay.bulk.start("cancel", { workflow: "charge" }, { patch: {} }), is("invalid"));
  const preview = await belay.bulk.preview("cancel", { workflow: "charge" });
  assert.deepEqual([preview.count, preview.more, preview.first.map((x) => x.execution)], [3, undefined, ids.reverse()]);
  const bulk = await belay.bulk.start("cancel", { workflow: "charge" }, { canary: [], rate: 1000, notes: "not needed" });
  let ended = bulk;
  while (ended.state !== "succeeded") ended = await answer(belay, bulk.id);
  assert.deepEqual((ended.output as { succeeded: number }).succeeded, 3);
  for (const id of ids) assert.equal((await answer(belay, id)).state, "cancelled");
});

const answer = async (belay: Belay, id: string) => {
  const { data } = await belay.api.GET("/v1/executions/{id}", { params: { path: { id }, header: { Prefer: "wait=20" } } });
  assert.ok(data);
  return data;
};
