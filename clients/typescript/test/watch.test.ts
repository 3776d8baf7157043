import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, type WatchOptions } from "../src/index.js";
import { cut, end, event, json, problem, stream, stub, type Stub } from "./stub.js";

async function seqs(s: Stub, o?: WatchOptions): Promise<number[]> {
  const all: number[] = [];
  for await (const e of new Belay({ url: s.url }).watch("ex_1", o)) all.push(e.seq);
  return all;
}

test("a watch ends with the execution, and says how", async (t) => {
  const s = await stub(t, stream('event: snapshot\ndata: {"id":"ex_1"}\n\n', event(1), ": ping\n\n", event(2), end(2)));
  const ids: string[] = [];
  const events = new Belay({ url: s.url }).watch("ex_1", { onSnapshot: (x) => ids.push(x.id) });
  assert.equal((await events.next()).value.seq, 1);
  assert.equal((await events.next()).value.seq, 2);
  assert.deepEqual(await events.next(), { done: true, value: { state: "succeeded", seq: 2 } });
  assert.deepEqual(ids, ["ex_1"]);
});

test("a broken stream goes on after the last event that was seen, each once", async (t) => {
  const s = await stub(
    t,
    stream(event(1), event(2), event(3).slice(0, 40)), // in the middle of an event
    cut,
    problem(503, "unavailable", {}, { "Retry-After": "1" }),
    stream(event(2), event(3)), // one that was seen
    stream(event(4), end(4)),
  );
  assert.deepEqual(await seqs(s), [1, 2, 3, 4]);
  assert.deepEqual(s.headers.map((h) => h["last-event-id"]), [undefined, "2", "2", "2", "3"]);
});

test("a silent stream is given up and opened again", async (t) => {
  const s = await stub(t, (res) => void res.writeHead(200, { "Content-Type": "text/event-stream" }).write(event(1)), stream(event(2), end(2)));
  assert.deepEqual(await seqs(s, { silenceMs: 200 }), [1, 2]);
});

test("a watch begins after a seq", async (t) => {
  const s = await stub(t, stream(event(8), end(8)));
  assert.deepEqual(await seqs(s, { after: 7, data: true }), [8]);
  assert.equal(s.headers[0]!["last-event-id"], "7");
  assert.match(s.seen[0]!, /\?data=true$/);
});

test("a watch that lost nothing but the end asks how the execution ended", async (t) => {
  const none = (res: import("node:http").ServerResponse) => void res.writeHead(204).end();
  const s = await stub(t, stream(event(1), event(2)), none, json(200, { id: "ex_1", state: "succeeded", seq: 2 }));
  const events = new Belay({ url: s.url }).watch("ex_1");
  assert.equal((await events.next()).value.seq, 1);
  assert.equal((await events.next()).value.seq, 2);
  assert.deepEqual(await events.next(), { done: true, value: { state: "succeeded", seq: 2 } });
  assert.match(s.seen[2]!, /^GET \/v1\/executions\/ex_1$/);
});

test("a refusal ends the watch; so does a server that stays away", async (t) => {
  const gone = await stub(t, problem(410, "cursor_expired"));
  await assert.rejects(seqs(gone), (e) => e instanceof BelayError && e.code === "cursor_expired");
  assert.equal(gone.seen.length, 1);
  const away = await stub(t, cut);
  await assert.rejects(seqs(away, { patienceMs: 300 }), (e) => e instanceof BelayError && e.code === "unavailable");
});

test("a watch that is left or aborted closes its connection", async (t) => {
  let closed = 0;
  let all = () => {};
  const both = new Promise<void>((resolve) => (all = resolve));
  const s = await stub(t, (res) => {
    res.writeHead(200, { "Content-Type": "text/event-stream" }).write(event(1));
    res.on("close", () => ++closed === 2 && all());
  });
  for await (const e of new Belay({ url: s.url }).watch("ex_1")) {
    assert.equal(e.seq, 1);
    break;
  }
  const stop = new AbortController();
  await assert.rejects(async () => {
    for await (const e of new Belay({ url: s.url }).watch("ex_1", { signal: stop.signal })) stop.abort(new Error(`enough after ${e.seq}`));
  }, /enough after 1/);
  await both;
});
