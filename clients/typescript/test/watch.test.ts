import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, type Event, type WatchOptions } from "belay-client";
import { cut, end, event, execution, json, problem, stream, type Answer, type Stub } from "./answers.js";
import { stub } from "./kit.js";

async function seqs(s: Stub, o?: WatchOptions): Promise<number[]> {
  const all: number[] = [];
  for await (const e of new Belay({ url: s.url }).watch("ex_1", o)) all.push(e.seq);
  return all;
}

/** holding is a stream that becomes silent after its pieces. */
const holding = (...body: string[]): Answer => ({ ...stream(...body), then: "hold" });

test("a watch ends with the execution, and returns the end", async (t) => {
  const s = await stub(t, stream('event: snapshot\ndata: {"id":"ex_1"}\n\n', event(1), ": ping\n\n", event(2), end(2)));
  const ids: string[] = [];
  const events = new Belay({ url: s.url }).watch("ex_1", { onSnapshot: (x) => ids.push(x.id) });
  assert.equal(((await events.next()).value as Event).seq, 1);
  assert.equal(((await events.next()).value as Event).seq, 2);
  assert.deepEqual(await events.next(), { done: true, value: { state: "succeeded", seq: 2 } });
  assert.deepEqual(ids, ["ex_1"]);
});

test("a broken stream continues after the last event, and yields each event once", async (t) => {
  const s = await stub(
    t,
    stream(event(1), event(2), event(3).slice(0, 40)), // breaks within an event
    cut,
    problem(503, "unavailable", {}, { "Retry-After": "1" }),
    stream(event(2), event(3)), // repeats an event
    stream(event(4), end(4)),
  );
  assert.deepEqual(await seqs(s), [1, 2, 3, 4]);
  assert.deepEqual(
    (await s.seen()).map((r) => r.headers["last-event-id"]),
    [undefined, "2", "2", "2", "3"],
  );
});

test("a silent stream is closed and opened again", async (t) => {
  const s = await stub(t, holding(event(1)), stream(event(2), end(2)));
  assert.deepEqual(await seqs(s, { silenceMs: 200 }), [1, 2]);
});

test("a slow caller does not make a stream count as silent", async (t) => {
  const s = await stub(t, { ...stream(event(1), event(2), end(2)), then: "hold" });
  for await (const e of new Belay({ url: s.url }).watch("ex_1", { silenceMs: 150, patienceMs: 100 })) {
    if (e.seq === 1) await new Promise((resolve) => setTimeout(resolve, 400));
  }
  assert.equal((await s.seen()).length, 1);
});

test("a watch begins after a seq", async (t) => {
  const s = await stub(t, stream(event(8), end(8)));
  assert.deepEqual(await seqs(s, { after: 7, data: true }), [8]);
  const [request] = await s.seen();
  assert.equal(request!.headers["last-event-id"], "7");
  assert.match(request!.line, /\?data=true$/);
});

test("a watch that missed only the end reads the end of the execution", async (t) => {
  const s = await stub(t, stream(event(1), event(2)), { status: 204 }, json(200, execution("succeeded")));
  const events = new Belay({ url: s.url }).watch("ex_1");
  assert.equal(((await events.next()).value as Event).seq, 1);
  assert.equal(((await events.next()).value as Event).seq, 2);
  assert.deepEqual(await events.next(), { done: true, value: { state: "succeeded", seq: 2 } });
  assert.equal((await s.seen())[2]!.line, "GET /v1/executions/ex_1");
});

test("a refusal ends the watch; so does a server that stays away, or sends nothing", async (t) => {
  const gone = await stub(t, problem(410, "cursor_expired"));
  await assert.rejects(seqs(gone), (e) => e instanceof BelayError && e.code === "cursor_expired");
  assert.equal((await gone.seen()).length, 1);
  for (const answer of [cut, stream()]) {
    const away = await stub(t, answer);
    await assert.rejects(seqs(away, { patienceMs: 300 }), (e) => e instanceof BelayError && e.code === "unavailable");
    assert.ok((await away.seen()).length > 1);
  }
});

test("a watch that is left or aborted closes its connection", async (t) => {
  const s = await stub(t, holding(event(1)));
  for await (const e of new Belay({ url: s.url }).watch("ex_1")) {
    assert.equal(e.seq, 1);
    break;
  }
  const stop = new AbortController();
  await assert.rejects(async () => {
    for await (const e of new Belay({ url: s.url }).watch("ex_1", { signal: stop.signal }))
      stop.abort(new Error(`enough after ${e.seq}`));
  }, /enough after 1/);
  await s.closed(2);
});

/** read watches a stream that comes in exactly these pieces. */
async function read(...pieces: Uint8Array[]): Promise<unknown[]> {
  const fetch = async () => {
    const body = new ReadableStream<Uint8Array>({
      start(c) {
        for (const p of pieces) c.enqueue(p);
        c.close();
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream; charset=utf-8" } });
  };
  const all: unknown[] = [];
  const events = new Belay({ url: "http://stub", fetch }).watch("ex_1");
  for (let next = await events.next(); ; next = await events.next()) {
    all.push(next.value);
    if (next.done) return all;
  }
}

test("every kind of line end and every division of a stream into pieces gives the same events", async () => {
  const text =
    '\uFEFF: hello\nretry: 5\nevent: event\nid: 1\ndata: {"seq":1,\ndata:"text":"grüße 👋"}\n\nid\n\n' +
    'event: event\nid: 2\ndata: {"seq":2}\n\nevent: end\ndata: {"state":"succeeded"}\n\n';
  const want = [{ seq: 1, text: "grüße 👋" }, { seq: 2 }, { state: "succeeded" }];
  for (const eol of ["\n", "\r\n", "\r"]) {
    const bytes = new TextEncoder().encode(text.replaceAll("\n", eol));
    for (const size of [1, 2, 3, 5, 1000]) {
      const pieces: Uint8Array[] = [];
      for (let i = 0; i < bytes.length; i += size) pieces.push(bytes.slice(i, i + size));
      assert.deepEqual(await read(...pieces), want, `pieces of ${size} bytes, lines end with ${JSON.stringify(eol)}`);
    }
  }
});
