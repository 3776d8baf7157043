import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Belay } from "belay-client";
import { event, stream } from "./answers.js";
import { stub } from "./kit.js";

setFlagsFromString("--expose_gc");
const collect = runInNewContext("gc") as () => void;

test("a call and a stream can be aborted after garbage was collected", async (t) => {
  for (const [answer, call] of [
    [{ status: 200, then: "hold" }, (b: Belay, signal: AbortSignal) => b.get("ex_1", signal)],
    [
      { ...stream(event(1)), then: "hold" },
      async (b: Belay, signal: AbortSignal) => {
        for await (const e of b.watch("ex_1", { signal })) void e;
      },
    ],
    [
      { ...stream(event(1)), then: "hold" },
      async (b: Belay, signal: AbortSignal) => {
        for await (const c of b.chatStream("hi", { signal })) void c;
      },
    ],
  ] as const) {
    const s = await stub(t, answer);
    const stop = new AbortController();
    const called = call(new Belay({ url: s.url }), stop.signal);
    while ((await s.seen()).length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      collect();
    }
    stop.abort(new Error("enough"));
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("it was not aborted")), 5_000).unref());
    await assert.rejects(Promise.race([called, late]), /enough/);
    await s.closed(1);
  }
});
