import assert from "node:assert/strict";
import { test } from "node:test";
import { messages, type Message } from "../src/sse.js";

async function read(...pieces: (string | Uint8Array)[]): Promise<Message[]> {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    start(c) {
      for (const p of pieces) c.enqueue(typeof p === "string" ? encoder.encode(p) : p);
      c.close();
    },
  });
  const all: Message[] = [];
  for await (const m of messages(body)) all.push(m);
  return all;
}

test("a message is an event, an id and lines of data; comments are none", async () => {
  assert.deepEqual(await read(": ping\n\nevent: event\nid: 7\ndata: one\ndata:two\nretry: 5\n\ndata: x\n\n"), [
    { event: "event", id: "7", data: "one\ntwo" },
    { event: "message", id: undefined, data: "x" },
  ]);
});

test("every way to end a line and to cut a stream into pieces reads the same", async () => {
  const text = "event: event\nid: 1\ndata: {\"text\":\"grüße 👋\"}\n\nevent: end\ndata: {}\n\n";
  const want = await read(text);
  assert.equal(want.length, 2);
  for (const eol of ["\n", "\r\n", "\r"]) {
    const bytes = new TextEncoder().encode(text.replaceAll("\n", eol) + (eol === "\r" ? ":\r" : ""));
    for (const size of [1, 2, 3, 5, 1000]) {
      const pieces: Uint8Array[] = [];
      for (let i = 0; i < bytes.length; i += size) pieces.push(bytes.slice(i, i + size));
      assert.deepEqual(await read(...pieces), want, `pieces of ${size} bytes, lines end with ${JSON.stringify(eol)}`);
    }
  }
});

test("a message that the stream breaks off in is not one", async () => {
  assert.deepEqual(await read("data: whole\n\ndata: half\n"), [{ event: "message", id: undefined, data: "whole" }]);
});
