// Uses a server with the AI SDK and its default provider for OpenAI, which uses responses. The server's agent is the one
// of examples/agent-service, with structured output; its address is the argument. The AI SDK ignores the header
// X-Should-Retry, and makes two retries by itself.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateText, jsonSchema, streamText, tool } from "ai";
import { jobs, load, runAll, url } from "./run.js";

const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none needed" });
const model = openai("gpt-whatever");

/** once checks that the agent runs exactly once. */
const once = async (call) => {
  const before = await jobs();
  await call();
  assert.equal((await jobs()) - before, 1, "the number of runs of the agent");
};

const checks = {
  async text() {
    const got = await generateText({ model, system: "be brief", prompt: "one\ntwo" });
    assert.equal(got.text, "</message>");
    assert.equal(got.finishReason, "stop");
    assert.equal(got.usage.totalTokens, 107);
    const { text } = await generateText({ model, prompt: "one\ntwo" });
    assert.equal(text, "two");
  },

  async conversation() {
    const messages = [{ role: "user", content: "hello" }];
    const first = await generateText({ model, messages });
    messages.push(...first.response.messages, { role: "user", content: "again" });
    const stream = streamText({ model, messages });
    assert.match(await stream.text, /<message role="assistant">\s+hello\s+<\/message>/);
  },

  async stream() {
    const stream = streamText({ model, prompt: "one\nsleep 1\ntwo" });
    const said = [];
    for await (const text of stream.textStream) said.push(text);
    assert.ok(said.length >= 2, "the text came in one piece");
    assert.equal(said.join(""), "one\n\ntwo");
    assert.equal(await stream.finishReason, "stop");
    assert.equal((await stream.usage).totalTokens, 107);
  },

  async failure() {
    for (const m of [model, openai.chat("gpt-whatever")]) {
      await once(async () => {
        const refused = await generateText({ model: m, prompt: "fail 3" }).catch((e) => e);
        assert.ok(APICallError.isInstance(refused), `${refused}`);
        assert.equal(refused.statusCode, 422);
        assert.match(refused.message, /exit code 3/);
      });
    }
  },

  async "failure in a stream"() {
    for (const m of [model, openai.chat("gpt-whatever")]) {
      for (const prompt of ["fail 3", "one\nfail 3"]) {
        await once(async () => {
          const failures = [];
          const stream = streamText({ model: m, prompt, onError: ({ error }) => failures.push(error) });
          await stream.consumeStream();
          assert.equal(failures.length, 1);
          assert.match(failures[0].message ?? JSON.stringify(failures[0]), /exit code 3/);
        });
      }
    }
  },

  async tools() {
    const tools = { f: tool({ description: "f", inputSchema: jsonSchema({ type: "object", properties: {} }) }) };
    const refused = await generateText({ model, prompt: "x", tools }).catch((e) => e);
    assert.ok(APICallError.isInstance(refused), `${refused}`);
    assert.equal(refused.statusCode, 400);
    assert.match(refused.message, /leave tools out/);
  },

  async abort() {
    const control = new AbortController();
    const asked = generateText({ model, prompt: "until never", abortSignal: control.signal });
    await load(1);
    control.abort();
    await assert.rejects(asked);
    await load(0);
  },

  async key() {
    const headers = { "Idempotency-Key": "aisdk" };
    const id = async () => (await generateText({ model, prompt: "hello", headers })).response.id;
    assert.equal(await id(), await id());
  },
};

await runAll(checks);
