import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, type StateNews } from "belay-client";
import { cut, problem, stream } from "./answers.js";
import { start, stub } from "./kit.js";

const part = (id: string, cause: string, first: boolean, last: boolean, ...executions: string[]): string =>
  `event: snapshot\n${id === "" ? "" : `id: ${id}\n`}data: ${JSON.stringify({
    cause,
    first,
    last,
    executions: executions.map((execution) => ({ execution, seq: 1, state: "pending" })),
  })}\n\n`;
const change = (id: string, execution: string, seq: number, matches = true): string =>
  `event: change\nid: ${id}\ndata: ${JSON.stringify({ execution, seq, state: "running", matches })}\n\n`;

/** some returns the first news in short: the cause and ids of a snapshot, or the id and seq of a change. */
async function some(n: number, all: AsyncGenerator<StateNews>): Promise<string[]> {
  const out: string[] = [];
  for await (const x of all) {
    const ids = (x.snapshot ?? []).map((s) => s.execution).join();
    out.push(x.snapshot ? `${x.cause} ${ids}` : `${x.change.execution} ${x.change.seq}`);
    if (out.length === n) break;
  }
  return out;
}

test("follow yields the states of a real server, and what stops to match", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const one = await belay.submit("invoice", { labels: { team: "web" } });
  await belay.submit("invoice", { labels: { team: "api" } });
  const news = belay.follow({ labels: { team: "web" }, state: ["pending", "running"], workflow: "invoice" });
  const first = (await news.next()).value as StateNews;
  assert.deepEqual([first.cause, first.truncated, first.snapshot?.map((s) => [s.execution, s.state])], [
    "begin",
    false,
    [[one.id, "pending"]],
  ]);
  await belay.cancel(one.id);
  const { change: last } = (await news.next()).value as StateNews;
  assert.deepEqual([last?.execution, last?.previous, last?.state, last?.matches], [one.id, "pending", "cancelled", false]);
  await news.return();
  await assert.rejects(belay.follow({ workflow: "\0" }).next(), (e) => e instanceof BelayError && e.status === 400);
});

test("a follower continues after the last change, and joins the parts of a snapshot", async (t) => {
  const s = await stub(
    t,
    stream(part("", "begin", true, false, "ex_1"), part("a.1", "begin", false, true, "ex_2"), change("a.2", "ex_1", 2)),
    cut,
    problem(503, "unavailable", {}, { "Retry-After": "0" }),
    stream(part("", "lost", true, false, "ex_3")), // breaks within a snapshot
    stream(part("b.1", "lost", true, true, "ex_3"), 'event: position\nid: b.2\ndata: {}\n\n'),
    stream(change("b.3", "ex_3", 2, false)),
  );
  const news = new Belay({ url: s.url }).follow({ state: ["running"], children: true });
  assert.deepEqual(await some(4, news), ["begin ex_1,ex_2", "ex_1 2", "lost ex_3", "ex_3 2"]);
  const seen = await s.seen();
  assert.deepEqual(
    seen.map((r) => r.headers["last-event-id"]),
    [undefined, "a.2", "a.2", "a.2", "a.2", "b.2"],
  );
  assert.equal(seen[0]!.line, "GET /v1/executions/events?state=running&children=true");
});

test("a follower ends with its signal, and does not ask again after a refusal", async (t) => {
  const s = await stub(t, { ...stream(part("a.1", "begin", true, true)), then: "hold" }, problem(403, "forbidden"));
  const belay = new Belay({ url: s.url });
  const ending = new AbortController();
  const news = belay.follow({}, { signal: ending.signal });
  await news.next();
  ending.abort(new Error("enough"));
  await assert.rejects(news.next(), /enough/);
  await assert.rejects(belay.follow().next(), (e) => e instanceof BelayError && e.status === 403);
  assert.equal((await s.seen()).length, 2);
});
