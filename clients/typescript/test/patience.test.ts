import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, LeaseHeld, LeaseLost } from "belay-client";
import { cut, execution, json, problem, type Answer } from "./answers.js";
import { stub } from "./kit.js";

const pending = execution("pending");
const away = problem(503, "unavailable", {}, { "Retry-After": "0" });
const halfway: Answer = { status: 200, headers: { "Content-Type": "application/json" }, body: ['{"id":'], then: "cut" };

test("a call that is safe to repeat is repeated: after 503, 429, a broken connection, half an answer", async (t) => {
  const s = await stub(
    t,
    away,
    cut,
    halfway,
    problem(429, "rate_limited", {}, { "Retry-After": "0" }),
    json(200, pending),
  );
  assert.equal((await new Belay({ url: s.url }).get("ex_1")).workflow, "w");
  assert.deepEqual(
    (await s.seen()).map((r) => r.line),
    Array(5).fill("GET /v1/executions/ex_1"),
  );
});

test("a submit is repeated with the same id", async (t) => {
  const s = await stub(t, cut, away, json(201, pending));
  await new Belay({ url: s.url }).submit("w", { input: { n: 1 } });
  const bodies = (await s.seen()).map((r) => r.body);
  assert.equal(bodies.length, 3);
  assert.equal(new Set(bodies).size, 1);
  const { id } = JSON.parse(bodies[0]!) as { id: string };
  assert.match(id, /^ex_[0-7][0-9a-hjkmnp-tv-z]{25}$/);
});

test("a signal is repeated with the same Idempotency-Key", async (t) => {
  const s = await stub(t, cut, away, json(202, {}));
  await new Belay({ url: s.url }).signal("ex_1", "go", { by: "ann" });
  const keys = (await s.seen()).map((r) => r.headers["idempotency-key"]);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  assert.ok(keys[0]);
});

test("a call that is not safe to repeat is sent once", async (t) => {
  const s = await stub(t, away, json(200, {}));
  const belay = new Belay({ url: s.url });
  const { response } = await belay.api.POST("/v1/workers/{id}/claim", {
    params: { path: { id: "wk_1" } },
    body: { number: 1, slots: 1 },
  });
  assert.equal(response.status, 503);
  assert.equal((await s.seen()).length, 1);
});

test("when its patience is over, a call throws", async (t) => {
  const s = await stub(t, cut);
  const err = await thrown(new Belay({ url: s.url, patienceMs: 300 }).get("ex_1"));
  assert.equal(err.code, "unavailable");
  assert.ok((await s.seen()).length > 1);
  const busy = await stub(t, problem(503, "unavailable", {}, { "Retry-After": "60" }));
  const later = await thrown(new Belay({ url: busy.url, patienceMs: 300 }).get("ex_1"));
  assert.equal(later.retryAfterMs, 60_000);
  assert.equal((await busy.seen()).length, 1);
});

test("an aborted call ends at once, with the reason of its signal", async (t) => {
  const s = await stub(t, { status: 200, then: "hold" });
  const stop = new AbortController();
  const call = new Belay({ url: s.url }).get("ex_1", stop.signal);
  setTimeout(() => stop.abort(new Error("enough")), 50);
  await assert.rejects(call, /enough/);
  await s.closed(1);
});

test("errors are typed, with the code, the holder and the cause", async (t) => {
  const holder = { owner: "ann", worker: "wk_1", token: 3, expires_in_ms: 900 };
  for (const [answer, type, check] of [
    [problem(404, "not_found"), BelayError, (e: BelayError) => assert.equal(e.code, "not_found")],
    [
      problem(409, "lease_held", { holder }),
      LeaseHeld,
      (e: BelayError) => assert.equal((e as LeaseHeld).holder?.owner, "ann"),
    ],
    [
      problem(412, "lease_lost", { cause: "reassigned" }),
      LeaseLost,
      (e: BelayError) => assert.equal((e as LeaseLost).because, "reassigned"),
    ],
    [
      problem(422, "invalid", { errors: [{ location: "body.owner", message: "too long" }] }),
      BelayError,
      (e: BelayError) => assert.match(e.message, /body\.owner: too long/),
    ],
    [json(500, "<html>"), BelayError, (e: BelayError) => assert.equal(e.code, "internal")],
  ] as const) {
    const s = await stub(t, answer);
    const err = await thrown(new Belay({ url: s.url }).lock("ex_1", { owner: "bert" }));
    assert.ok(err instanceof type);
    check(err);
  }
});

test("the key is sent, and is part of no error", async (t) => {
  const s = await stub(t, problem(403, "forbidden"));
  const err = await thrown(new Belay({ url: s.url, key: "bly_secret" }).get("ex_1"));
  assert.equal((await s.seen())[0]!.headers["authorization"], "Bearer bly_secret");
  assert.ok(!JSON.stringify([err.message, err.stack, err.problem]).includes("bly_secret"));
});

async function thrown(call: Promise<unknown>): Promise<BelayError> {
  const err = await call.then(
    () => assert.fail("nothing was thrown"),
    (e: unknown) => e,
  );
  assert.ok(err instanceof BelayError, String(err));
  return err;
}
