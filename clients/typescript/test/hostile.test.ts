import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, LeaseLost } from "belay-client";
import { event, execution, json, stream, type Answer } from "./answers.js";
import { shared, stub } from "./kit.js";

const is = (code: string) => (e: unknown) => e instanceof BelayError && e.code === code;

test("an id cannot lead to another route", async (t) => {
  const s = await stub(t, json(200, execution("pending")));
  const belay = new Belay({ url: s.url });
  for (const id of ["..", ".", "", "\ud800"]) {
    await assert.rejects(belay.get(id), is("invalid"));
    await assert.rejects(belay.cancel(id), is("invalid"));
    await assert.rejects(belay.jobs.get(id), is("invalid"));
    await assert.rejects(belay.watch(id).next(), is("invalid"));
    await assert.rejects(belay.jobs.log(id).next(), is("invalid"));
    const params = { path: { id: "ex_1", name: id } };
    await assert.rejects(belay.api.GET("/v1/executions/{id}/logs/{name}", { params }), is("invalid"));
  }
  assert.equal((await s.seen()).length, 0);
  await belay.get("../keys");
  await belay.get("ex_1?x=1#y");
  await belay.get("%2e%2e");
  assert.deepEqual(
    (await s.seen()).map((r) => r.line),
    ["GET /v1/executions/..%2Fkeys", "GET /v1/executions/ex_1%3Fx%3D1%23y", "GET /v1/executions/%252e%252e"],
  );
  await assert.rejects(
    new Belay({ url: await shared() }).get("../keys"),
    (e) => e instanceof BelayError && e.status >= 400 && e.status < 500,
  );
});

test("a value with a line break is refused before it becomes a header, and the error does not contain it", async (t) => {
  const s = await stub(t, json(200, {}));
  for (const bad of ["bly_secret\r\nX-Evil: 1", "bly_secret\nx", "bly_\u{1f511}secret", "bly_secret\0", ""]) {
    assert.throws(
      () => new Belay({ url: s.url, key: bad }),
      (e) => is("invalid")(e) && !String(e).includes("secret"),
    );
  }
  const belay = new Belay({ url: s.url, key: "bly_secret\n" }); // as files have it
  const idempotencyKey = "a\r\nX-Evil: 1";
  await assert.rejects(belay.jobs.execute("hi", { idempotencyKey }), is("invalid"));
  await assert.rejects(belay.chat("hi", { idempotencyKey }), is("invalid"));
  await assert.rejects(belay.chatStream("hi", { idempotencyKey }).next(), is("invalid"));
  await assert.rejects(belay.jobs.log("ex_1", { after: "1\n2" }).next(), is("invalid"));
  await assert.rejects(belay.watch("ex_1", { after: NaN }).next(), is("invalid"));
  assert.equal((await s.seen()).length, 0);
  await belay.api.GET("/v1/keys");
  assert.equal((await s.seen())[0]!.headers["authorization"], "Bearer bly_secret");
});

test("an address that is none, or has a password, is refused, and the error does not contain it", () => {
  for (const url of [
    "",
    "127.0.0.1:7420",
    "ftp://h",
    "http://user:secret@h",
    "http://h/?key=secret",
    "http://h/#secret",
    "//h",
  ]) {
    assert.throws(
      () => new Belay({ url }),
      (e) => is("invalid")(e) && !String(e).includes("secret"),
    );
  }
  assert.ok(new Belay({ url: "https://h.example/below/" }));
});

test("a redirect is not followed, so that another server gets neither the key nor a lease", async (t) => {
  const other = await stub(t, json(200, execution("pending")));
  for (const status of [301, 302, 303, 307, 308]) {
    const s = await stub(t, { status, headers: { Location: other.url + "/v1/executions/ex_1" } });
    const belay = new Belay({ url: s.url, key: "bly_secret" });
    for (const call of [
      () => belay.get("ex_1"),
      () => belay.submit("w"),
      () => belay.watch("ex_1").next(),
      () => belay.awaitMany(["ex_1"]).next(),
      () => belay.chatStream("hi").next(),
      () => belay.api.GET("/v1/keys"),
    ]) {
      await assert.rejects(call, (e) => is("invalid")(e) && /redirect/.test(String(e)));
    }
    assert.equal((await s.seen()).length, 6, "a redirect is no reason to repeat a call");
  }
  assert.equal((await other.seen()).length, 0);
});

test("an answer without end is refused at its limit, and its connection is closed", async (t) => {
  const piece = JSON.stringify("x".repeat(64 * 1024));
  for (const status of [200, 500]) {
    const s = await stub(t, {
      status,
      headers: { "Content-Type": "application/json" },
      body: [`{"a":[${piece}`, `,${piece}`],
      then: "repeat",
    });
    const belay = new Belay({ url: s.url, maxAnswerBytes: 1_000_000 });
    await assert.rejects(belay.get("ex_1"), is("payload_too_large"));
    await s.closed(1);
    if (status === 500) await assert.rejects(belay.watch("ex_1").next(), is("payload_too_large"));
  }
});

test("a message of a stream that never ends is refused at its limit", async (t) => {
  const line: Answer = { ...stream("data: ", "x".repeat(2 ** 20)), then: "repeat" };
  const lines: Answer = { ...stream(`data: ${"x".repeat(2 ** 20)}\n`), then: "repeat" };
  for (const answer of [line, lines]) {
    const s = await stub(t, answer);
    await assert.rejects(new Belay({ url: s.url }).watch("ex_1").next(), is("payload_too_large"));
    await s.closed(1);
  }
});

test("an answer that is no JSON, or other JSON, is an error that names the reason", async (t) => {
  const html: Answer = { status: 200, headers: { "Content-Type": "text/html" }, body: ["<html>sign in</html>"] };
  for (const answer of [html, json(200, null), json(200, 7), { status: 200 }, { ...html, body: ["{"] }]) {
    const s = await stub(t, answer);
    const belay = new Belay({ url: s.url, patienceMs: 200 });
    const foreign = (e: unknown) => is("internal")(e) && /proxy/.test(String(e));
    await assert.rejects(belay.get("ex_1"), foreign);
    await assert.rejects(
      belay.submitMany([{ workflow: "w" }]).then(([r]) => Promise.reject(r!.error)),
      foreign,
    );
    await assert.rejects(belay.watch("ex_1").next(), foreign);
    await assert.rejects(belay.awaitMany(["ex_1"]).next(), foreign);
    await assert.rejects(belay.chat("hi"), foreign);
    await assert.rejects(belay.chatStream("hi").next(), foreign);
    await assert.rejects(belay.lock("ex_1", { owner: "ann" }), foreign);
  }
  const broken = await stub(t, stream("event: event\nid: 1\ndata: {\n\n"));
  await assert.rejects(new Belay({ url: broken.url }).watch("ex_1").next(), is("internal"));
  assert.equal((await broken.seen()).length, 1, "a stream that cannot be read is no reason to open it again");
  const page = await stub(t, { ...html, status: 502 });
  await assert.rejects(new Belay({ url: page.url, patienceMs: 200 }).get("ex_1"), is("unavailable"));
});

test("a lock with a TTL or an interval of zero does not make a busy loop", async (t) => {
  const lease = { lock_id: "ls_1", token: 1, expires_in_ms: 400, heartbeat_interval_ms: 0 };
  const lock = json(201, { execution: execution("running"), checkpoint: null, lease });
  const s = await stub(t, lock, json(200, { expires_in_ms: 0 }));
  const own = await new Belay({ url: s.url }).lock("ex_1", { owner: "ann" });
  await own.keepAlive();
  assert.ok(own.signal.aborted && own.signal.reason instanceof LeaseLost);
  assert.ok((await s.seen()).length < 100);
});

test("a time of more than 24 days does not fire at once", async (t) => {
  const s = await stub(t, { ...stream(event(1)), then: "hold" });
  const stop = new AbortController();
  const events = new Belay({ url: s.url }).watch("ex_1", { silenceMs: 2 ** 32, signal: stop.signal });
  await events.next();
  const next = events.next();
  setTimeout(() => stop.abort(new Error("enough")), 200);
  await assert.rejects(next, /enough/);
  assert.equal((await s.seen()).length, 1);
});
