import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, LeaseHeld, LeaseLost } from "../src/index.js";
import { cut, json, problem, stub } from "./stub.js";

const execution = { id: "ex_1", workflow: "w", queue: "default", state: "pending", seq: 1, token: 0, generation: 1, attempt: 1, created_at: "2026-11-20T12:00:00Z" };
const away = problem(503, "unavailable", {}, { "Retry-After": "0" });

test("a call that is safe to repeat is repeated: 503, 429, a connection that breaks", async (t) => {
  const s = await stub(t, away, cut, problem(429, "rate_limited", {}, { "Retry-After": "0" }), json(200, execution));
  assert.equal((await new Belay({ url: s.url }).get("ex_1")).workflow, "w");
  assert.deepEqual(s.seen, Array(4).fill("GET /v1/executions/ex_1"));
});

test("a submit is repeated under the same id", async (t) => {
  const bodies: string[] = [];
  const belay = (url: string) =>
    new Belay({
      url,
      fetch: async (r) => {
        bodies.push(await r.clone().text());
        return fetch(r);
      },
    });
  const s = await stub(t, cut, away, json(201, execution));
  await belay(s.url).submit("w", { input: { n: 1 } });
  assert.equal(bodies.length, 3);
  assert.equal(new Set(bodies).size, 1);
  const { id } = JSON.parse(bodies[0]!) as { id: string };
  assert.match(id, /^ex_[0-7][0-9a-hjkmnp-tv-z]{25}$/);
});

test("a signal is repeated under the same Idempotency-Key", async (t) => {
  const s = await stub(t, cut, away, json(202, {}));
  await new Belay({ url: s.url }).signal("ex_1", "go", { by: "ann" });
  const keys = s.headers.map((h) => h["idempotency-key"]);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  assert.ok(keys[0]);
});

test("what is not safe to repeat is sent once", async (t) => {
  const s = await stub(t, away, json(200, {}));
  const belay = new Belay({ url: s.url });
  const { response } = await belay.api.POST("/v1/workers/{id}/claim", { params: { path: { id: "wk_1" } }, body: { number: 1, slots: 1 } });
  assert.equal(response.status, 503);
  assert.equal(s.seen.length, 1);
});

test("patience ends, and the error says so", async (t) => {
  const s = await stub(t, cut);
  const err = await thrown(new Belay({ url: s.url, patienceMs: 300 }).get("ex_1"));
  assert.equal(err.code, "unavailable");
  assert.ok(s.seen.length > 1);
  const busy = await stub(t, problem(503, "unavailable", {}, { "Retry-After": "60" }));
  const later = await thrown(new Belay({ url: busy.url, patienceMs: 300 }).get("ex_1"));
  assert.equal(later.retryAfterMs, 60_000);
  assert.equal(busy.seen.length, 1);
});

test("errors are typed: the code, the holder, the cause", async (t) => {
  const holder = { owner: "ann", worker: "wk_1", token: 3, expires_in_ms: 900 };
  for (const [answer, type, check] of [
    [problem(404, "not_found"), BelayError, (e: BelayError) => assert.equal(e.code, "not_found")],
    [problem(409, "lease_held", { holder }), LeaseHeld, (e: BelayError) => assert.equal((e as LeaseHeld).holder?.owner, "ann")],
    [problem(412, "lease_lost", { cause: "reassigned" }), LeaseLost, (e: BelayError) => assert.equal((e as LeaseLost).because, "reassigned")],
    [problem(422, "invalid", { errors: [{ location: "body.owner", message: "too long" }] }), BelayError, (e: BelayError) => assert.match(e.message, /body\.owner: too long/)],
    [json(500, "<html>"), BelayError, (e: BelayError) => assert.equal(e.code, "internal")],
  ] as const) {
    const s = await stub(t, answer);
    const err = await thrown(new Belay({ url: s.url }).lock("ex_1", { owner: "bert" }));
    assert.ok(err instanceof type);
    check(err);
  }
});

test("the key is sent, and stands in no error", async (t) => {
  const s = await stub(t, problem(403, "forbidden"));
  const err = await thrown(new Belay({ url: s.url, key: "bly_secret" }).get("ex_1"));
  assert.equal(s.headers[0]!.authorization, "Bearer bly_secret");
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
