import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, LeaseHeld, LeaseLost, type End, type Event } from "belay-client";
import { shared, start } from "./kit.js";

const outside = { dispatch: "external", on_lost: "requeue" } as const;

test("submit, watch through a crash of the server, own an execution from outside, finish it", async (t) => {
  const server = await start(t);
  const belay = new Belay({ url: server.url });
  const talk = { ...outside, idempotency_key: "talk-1" };
  const x = await belay.submit("conversation", { ...talk, input: { topic: "tea" } });
  assert.equal(x.state, "pending");
  assert.equal((await belay.submit("conversation", { ...talk, input: { topic: "tea" } })).id, x.id);
  await refused("idempotency_mismatch", belay.submit("conversation", { ...talk, input: { topic: "rum" } }));

  const seen: Event[] = [];
  const saved = new Set<number>();
  let onEvent = () => {};
  const watched = (async (): Promise<End> => {
    const events = belay.watch(x.id);
    for (;;) {
      const next = await events.next();
      if (next.done) return next.value;
      seen.push(next.value);
      onEvent();
    }
  })();

  const lock = await belay.lock(x.id, { owner: "typescript", ttl: "30s" });
  assert.deepEqual([lock.execution.input, lock.checkpoint], [{ topic: "tea" }, undefined]);
  saved.add(await lock.save({ said: ["hello"] }));
  await new Promise<void>((resolve) => {
    onEvent = () => void (seen.some((e) => saved.has(e.seq)) && resolve());
    onEvent();
  });
  await server.kill();
  const late = lock.save({ said: ["hello", "is anybody there?"] }); // repeated until the server is back
  await server.up();
  saved.add(await late);
  assert.ok((await lock.heartbeat()).expires_in_ms > 0);
  assert.equal((await lock.complete({ turns: 2 })).state, "succeeded");

  assert.deepEqual(await watched, { state: "succeeded", seq: seen.length });
  assert.deepEqual(
    seen.map((e) => e.seq),
    seen.map((_, i) => i + 1),
  );
  assert.deepEqual(
    seen.map((e) => e.kind),
    ["submitted", "started", "state", "state", "succeeded"],
  );
  assert.deepEqual(
    seen.filter((e) => e.kind === "state").map((e) => e.seq),
    [...saved],
  );
  const done = await belay.result(x.id);
  assert.deepEqual([done.state, done.output, done.input], ["succeeded", { turns: 2 }, { topic: "tea" }]);
  assert.match((await belay.explain(x.id)).summary, /succeeded/);
  assert.deepEqual(
    (await belay.list({ workflow: "conversation" })).executions.map((e) => e.id),
    [x.id],
  );
  await refused("not_found", belay.get("ex_" + "0".repeat(25) + "1"));
});

test("a stale owner is refused every write, and gets the reason", async () => {
  const belay = new Belay({ url: await shared() });
  const { id } = await belay.submit("stale", outside);
  const first = await belay.lock(id, { owner: "first" });
  const alive = first.keepAlive();
  await first.save({ turn: 1 });
  const held = await belay.lock(id, { owner: "second" }).catch((e: unknown) => e);
  assert.ok(
    held instanceof LeaseHeld && held.holder?.owner === "first" && held.holder.token === first.token,
    String(held),
  );

  const stolen = await belay.api.POST("/v1/executions/{id}/lock/steal", {
    params: { path: { id } },
    body: { reason: "it hangs" },
  });
  assert.ok(stolen.response.ok);
  const second = await belay.lock(id, { owner: "second" });
  assert.deepEqual(second.checkpoint, { turn: 1 });
  assert.ok(second.token > first.token);

  const late = await first.save({ turn: 99 }).catch((e: unknown) => e);
  assert.ok(late instanceof LeaseLost, String(late));
  assert.equal(late.status, 412);
  assert.ok(first.signal.aborted && first.signal.reason === late);
  await alive;
  for (const call of [() => first.heartbeat(), () => first.complete(), async () => first.guard()]) {
    await assert.rejects(call, LeaseLost);
  }
  await second.complete();
});

test("a lock is valid as long as its heartbeats come, and not longer", async () => {
  const belay = new Belay({ url: await shared() });
  const { id } = await belay.submit("silent", { dispatch: "external" });
  const lock = await belay.lock(id, { owner: "typescript", ttl: "5s" });
  let beats = 0;
  let enough = () => {};
  const enoughBeats = new Promise<void>((resolve) => (enough = resolve));
  const alive = lock.keepAlive(() => ++beats === 4 && enough()); // longer than the TTL
  await Promise.race([enoughBeats, alive.then(() => assert.fail(`the lock was lost after ${beats} heartbeats`))]);
  lock.guard();
  await lock.suspend({ waitText: "the next lock" });
  await alive;

  const silent = await belay.lock(id, { owner: "typescript", ttl: "1s" });
  const end = await belay.result(id);
  assert.equal(end.state, "failed"); // the default for owners from outside
  assert.equal(end.error?.class, "lost");
  assert.throws(() => silent.guard(), LeaseLost);
  await assert.rejects(silent.heartbeat(), LeaseLost);
});

test("a key has its scopes and no others", async (t) => {
  const server = await start(t);
  const { data } = await new Belay({ url: server.url }).api.POST("/v1/keys", {
    body: { name: "reader", scopes: ["read"] },
  });
  assert.ok(data);
  const reader = new Belay({ url: server.url, key: data.secret });
  assert.deepEqual((await reader.list()).executions, []);
  await refused("forbidden", reader.submit("w"));
  await refused("unauthorized", new Belay({ url: server.url, key: "bly_wrong" }).list());
});

test("a submission by content finds the execution of its content, and none that was cancelled", async () => {
  const belay = new Belay({ url: await shared() });
  const price = (input: unknown) => belay.submit("price", { ...outside, idempotency: "content", input });
  const all = await Promise.all([price({ a: 1, b: [2] }), price({ b: [2], a: 1 }), price({ a: 1, b: [2] })]);
  const [first] = all;
  assert.equal(new Set(all.map((x) => x.id)).size, 1);
  assert.match(`${first.inputs_hash} ${first.config_hash}`, /^[0-9a-f]{64} [0-9a-f]{64}$/);
  const [many] = await belay.submitMany([{ ...outside, workflow: "price", idempotency: "content", input: { a: 1, b: [2] } }]);
  assert.deepEqual([many?.id, many?.replayed], [first.id, true]);
  const lock = await belay.lock(first.id, { owner: "typescript" });
  await lock.complete(3);
  assert.equal((await price({ a: 1, b: [2] })).output, 3);
  const runs = await belay.api.GET("/v1/runs", { params: { query: { execution: first.id } } });
  assert.equal(runs.data?.runs[0]?.inputs_hash, first.inputs_hash);
  const next = await price({ a: 2, b: [2] });
  await belay.cancel(next.id);
  assert.notEqual((await price({ a: 2, b: [2] })).id, next.id);
  await refused("invalid", belay.submit("price", { idempotency: "content", idempotency_key: "k" }));
});

test("signals, pause, resume, cancel and retry reach the execution", async () => {
  const belay = new Belay({ url: await shared() });
  const { id } = await belay.submit("operated");
  await belay.signal(id, "go", { by: "ann" });
  const { data } = await belay.api.GET("/v1/executions/{id}/signals", { params: { path: { id } } });
  assert.deepEqual(
    data?.signals.map((s) => [s.name, s.payload]),
    [["go", { by: "ann" }]],
  );
  assert.equal((await belay.pause(id, { actor: "ann", reason: "lunch" })).state, "paused");
  assert.equal((await belay.resume(id)).state, "pending");
  assert.equal((await belay.cancel(id)).state, "cancelled");
  assert.equal((await belay.retry(id)).state, "pending");
  await refused("conflict", belay.retry(id));
  await belay.cancel(id);
});

async function refused(code: string, call: Promise<unknown>): Promise<void> {
  await assert.rejects(call, (e) => e instanceof BelayError && e.code === code);
}
