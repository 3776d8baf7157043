import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, gate } from "belay-client";
import { json, problem } from "./answers.js";
import { start, stub } from "./kit.js";

const is = (code: string) => (e: unknown) => e instanceof BelayError && e.code === code;

test("gates of every kind are set, shown and removed", async (t) => {
  const { url } = await start(t);
  const { gates } = new Belay({ url });
  const name = "a/b ?#%2f..\u202eé";
  const why = { actor: "ann", reason: "a move" };
  const until = new Date("2099-01-01T00:00:00Z");
  const paused = await gates.pause(gate("queue", name), { ...why, until });
  assert.deepEqual([paused.id, paused.open, paused.pause?.by], [`queue:${name}`, false, "ann"]);
  assert.deepEqual([paused.pause?.reason, Date.parse(paused.pause?.until ?? "")], ["a move", until.getTime()]);
  assert.equal((await gates.resume(gate("queue", name), why)).open, true);
  assert.equal((await gates.pause("workflow:w", { until: "2099-01-01T00:00:00+02:00" })).open, false);
  await assert.rejects(gates.pause("workflow:w", { until: "2001-01-01T00:00:00Z" }), is("invalid"));
  await assert.rejects(gates.pause("workflow:w", { until: new Date(NaN) }));
  const limit = (await gates.setLimit("limit:crawler", 5, why)).limit;
  assert.deepEqual([limit?.max, limit?.set, limit?.by, limit?.reason], [5, 5, "ann", "a move"]);
  assert.equal((await gates.removeLimit("limit:crawler", why)).limit, undefined);
  const rate = (await gates.setRate("rate:mail", 10, "1s", why)).rate;
  assert.deepEqual([rate?.max, rate?.per, rate?.per_ms, rate?.set], [10, "1s", 1000, true]);
  assert.equal((await gates.removeRate("rate:mail", { reason: "it is over" })).rate, undefined);
  const breaker = (await gates.setBreaker("payments:charge", "open", why)).breaker;
  assert.deepEqual([breaker?.state, breaker?.forced, breaker?.by, breaker?.reason], ["open", true, "ann", "a move"]);
  assert.equal((await gates.breaker("payments:charge")).state, "open");
  assert.deepEqual(
    (await gates.breakers()).circuit_breakers.map((b) => b.target),
    ["payments:charge"],
  );
  assert.equal((await gates.setBreaker("payments:charge", "automatic")).open, true);
  const first = await gates.list({ kind: "queue", limit: 1 });
  assert.deepEqual(
    first.gates.map((g) => g.id),
    [`queue:${name}`],
  );
  const never = await gates.get("limit:never");
  assert.deepEqual([never.open, never.holders, never.line], [true, [], []]);
});

test("a resource has one mode at a time, and terms", async (t) => {
  const belay = new Belay({ url: (await start(t)).url });
  const swap = { workflow: "load", queue: "gpu-1" };
  const why = { actor: "ann", reason: "one GPU" };
  const set = (await belay.gates.setResource("gpu", { max_wait: "5m", min_residency_ms: 30_000, swap }, why)).resource;
  assert.deepEqual([set?.state, set?.max_wait_ms, set?.min_residency_ms, set?.swap?.queue, set?.by, set?.reason], [
    "idle",
    300_000,
    30_000,
    "gpu-1",
    "ann",
    "one GPU",
  ]);
  assert.deepEqual([set?.swap?.timeout, set?.swap?.timeout_ms], ["10m0s", 600_000]);
  const waiting = await belay.submit("w", { requires: { resource: "gpu", mode: "llama", preemptible: true } });
  assert.equal((await belay.get(waiting.id)).state, "pending");
  await assert.rejects(belay.submit("w", { requires: { resource: "gpu", mode: "" } }), is("invalid"));
  assert.equal((await belay.gates.removeResource("gpu", why)).resource?.set, undefined);
  assert.deepEqual((await belay.gates.resource("gpu")).resource?.waiting, []);
});

test("executions name gates and wait at them", async (t) => {
  const belay = new Belay({ url: (await start(t)).url });
  const concurrency = { name: "x", max: 1 };
  const first = await belay.submit("w", { concurrency, rate: { name: "y", max: 1, per: "1s" }, target: "z" });
  await assert.rejects(belay.submit("w", { concurrency: { ...concurrency, when_full: "reject" } }), is("conflict"));
  await belay.submit("w", { concurrency: { ...concurrency, when_full: "replace" } });
  assert.equal((await belay.result(first.id)).state, "cancelled");
  await belay.gates.pause("workflow:w", { reason: "a move" });
  const waiting = await belay.submit("w");
  assert.match((await belay.explain(waiting.id)).facts?.join("\n") ?? "", /a move/);
});

test("a change of a gate has a name, and is sent again until it has an answer", async (t) => {
  const done = json(200, { id: "queue:q", kind: "queue", name: "q", open: true, holders: [], line: [] });
  const s = await stub(t, { status: 0 }, problem(503, "unavailable"), done);
  const { gates } = new Belay({ url: s.url });
  await gates.pause("queue:q/../x");
  const pauses = await s.seen();
  assert.deepEqual(
    pauses.map((r) => r.line),
    Array(3).fill("POST /v1/gates/queue%3Aq%2F..%2Fx/pause"),
  );
  await gates.resume("queue:q");
  await gates.setLimit("queue:q", 5);
  await gates.removeLimit("queue:q", { actor: "ann & bob", reason: "why?" });
  await gates.setRate("queue:q", 5, "1s");
  await gates.removeRate("queue:q");
  await gates.setBreaker("payments:charge", "closed");
  const keys = (await s.seen()).map((r) => r.headers["idempotency-key"]);
  assert.equal(new Set(keys.slice(0, 3)).size, 1);
  assert.equal(new Set(keys.slice(2)).size, 7);
  assert.ok(keys.every((k) => k !== undefined && k !== ""));
  assert.equal((await s.seen())[5]?.line, "DELETE /v1/gates/queue%3Aq/limit?actor=ann%20%26%20bob&reason=why%3F");
  for (const id of ["", ".", "..", "\ud800"]) {
    await assert.rejects(gates.get(id), is("invalid"));
    await assert.rejects(gates.removeLimit(id), is("invalid"));
    await assert.rejects(gates.breaker(id), is("invalid"));
  }
});
