import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, newExecutionId } from "belay-client";
import { cut, execution, json, problem, stream } from "./answers.js";
import { shared, stub } from "./kit.js";

test("many executions are submitted in few requests, and awaited in one", async () => {
  let requests = 0;
  const belay = new Belay({ url: await shared(), fetch: (r) => (requests++, fetch(r)) });
  const list = Array.from({ length: 1500 }, (_, n) => ({ workflow: "many", input: { n } }));
  const submitted = await belay.submitMany(list);
  assert.equal(requests, 2);
  assert.ok(submitted.every((s) => s.error === undefined && !s.replayed));
  assert.deepEqual((await belay.get(submitted[1234]!.id)).input, { n: 1234 });

  const some = submitted.slice(0, 20).map((s) => s.id);
  const unknown = newExecutionId();
  requests = 0;
  const ends = belay.awaitMany([...some, unknown, some[0]!]);
  const first = await ends.next();
  assert.ok(first.value && first.value.id === unknown && first.value.error?.code === "not_found");
  const results = await belay.batch(some.map((id) => ({ signal: { execution: id, name: "go" } })));
  assert.ok(results.every((r) => r.error === undefined));
  for (const id of some) await belay.cancel(id);
  const ended = new Set<string>();
  for await (const e of ends) {
    assert.equal(e.execution?.state, "cancelled");
    ended.add(e.id);
  }
  assert.deepEqual([...ended].sort(), [...some].sort());
  assert.deepEqual(
    (await belay.results(some)).map((x) => x.id),
    some,
  );
  await assert.rejects(belay.results([unknown]), (e) => e instanceof BelayError && e.code === "not_found");
});

test("a refused submission does not make the others fail", async () => {
  const belay = new Belay({ url: await shared() });
  const wrong = { workflow: "w", timeout: "soon" }; // the server refuses a request with such a duration as a whole
  const [a, b, c, d] = await belay.submitMany([
    { workflow: "w", idempotency_key: "one-of-four" },
    wrong,
    { workflow: "" },
    { workflow: "w", idempotency_key: "one-of-four" },
  ]);
  assert.ok(a!.error === undefined && b!.error !== undefined && c!.error !== undefined && d!.error === undefined);
  assert.equal(d!.id, a!.id);
  assert.ok(a!.replayed || d!.replayed);
});

test("a batch is repeated with the same ids", async (t) => {
  const s = await stub(
    t,
    cut,
    problem(503, "unavailable", {}, { "Retry-After": "0" }),
    json(200, { results: [{ submitted: { id: "ex_1" } }, {}] }),
  );
  const belay = new Belay({ url: s.url });
  await belay.batch([{ submit: { workflow: "w" } }, { signal: { execution: "ex_1", name: "go" } }]);
  const bodies = (await s.seen()).map((r) => r.body);
  assert.equal(bodies.length, 3);
  assert.equal(new Set(bodies).size, 1);
  assert.match(bodies[0]!, /"id":"ex_[0-7]/);
  assert.match(bodies[0]!, /"op":"[0-7]/);
});

test("submissions for which the server was too busy are sent again, and the others are not", async (t) => {
  const busy = {
    error: { type: "urn:belay:error:unavailable", title: "No", status: 503, code: "unavailable", retry_after_ms: 10 },
  };
  const s = await stub(
    t,
    json(200, { results: [{ submitted: { id: "ex_1" } }, busy] }),
    json(200, { results: [{ submitted: { id: "ex_2" } }] }),
  );
  const answers = await new Belay({ url: s.url }).submitMany([
    { workflow: "w", id: "ex_1" },
    { workflow: "w", id: "ex_2" },
  ]);
  assert.deepEqual(
    answers.map((a) => [a.id, a.error]),
    [
      ["ex_1", undefined],
      ["ex_2", undefined],
    ],
  );
  const sent = (await s.seen()).map((r) => (JSON.parse(r.body) as { ops: unknown[] }).ops.length);
  assert.deepEqual(sent, [2, 1]);
  assert.equal((await s.seen())[0]!.headers["belay-only"], "submit");
});

test("a broken await asks again for the executions that are left", async (t) => {
  const ended = (id: string) => `event: ended\ndata: ${JSON.stringify({ ...execution("succeeded"), id })}\n\n`;
  const over = "event: over\ndata: {}\n\n";
  const busy =
    'event: refused\ndata: {"execution":"ex_3","error":{"title":"No","status":503,"code":"unavailable"}}\n\n';
  const s = await stub(
    t,
    stream(ended("ex_2")),
    cut,
    stream(ended("ex_2"), over),
    stream(busy, over),
    stream(ended("ex_1"), ended("ex_3"), over),
  );
  const ids: string[] = [];
  for await (const e of new Belay({ url: s.url }).awaitMany(["ex_1", "ex_2", "ex_3"])) ids.push(e.id);
  assert.deepEqual(ids, ["ex_2", "ex_1", "ex_3"]);
  const asked = (await s.seen()).map((r) => (JSON.parse(r.body) as { executions: string[] }).executions.length);
  assert.deepEqual(asked, [3, 2, 2, 2, 2]);
});

test("more than a thousand executions take turns", async (t) => {
  const s = await stub(
    t,
    stream("event: over\ndata: {}\n\n"),
    stream("event: over\ndata: {}\n\n"),
    problem(403, "forbidden"),
  );
  const ids = Array.from({ length: 1500 }, (_, n) => `ex_${n}`);
  await assert.rejects(
    new Belay({ url: s.url }).awaitMany(ids).next(),
    (e) => e instanceof BelayError && e.code === "forbidden",
  );
  const asked = (await s.seen()).map((r) => (JSON.parse(r.body) as { executions: string[] }).executions);
  assert.equal(asked[0]!.length, 1000);
  assert.deepEqual([asked[0]![0], asked[1]![0], asked[1]![999]], ["ex_0", "ex_1000", "ex_499"]);
});
