// Uses the types that openapi-typescript made from the OpenAPI document: it submits an execution, watches its events
// until it has ended, and chats with the agent. Its argument is the server's address.
import createClient from "openapi-fetch";
import type { components, paths } from "./generated.js";

type Schemas = components["schemas"];

const client = createClient<paths>({ baseUrl: process.argv[2]! });

function must<T>(value: T | undefined, why: unknown): T {
	if (value === undefined) throw new Error(JSON.stringify(why));
	return value;
}

async function* events(stream: ReadableStream<Uint8Array>): AsyncGenerator<{ event: string; data: string }> {
	let rest = "";
	const decoder = new TextDecoder();
	for await (const bytes of stream) {
		const blocks = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
		rest = blocks.pop()!;
		for (const block of blocks) {
			const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? "";
			yield { event: field("event"), data: field("data") };
		}
	}
}

const submitted = await client.POST("/v1/executions", { body: { workflow: "w", input: { n: 1 } } });
const id = must(submitted.data, submitted.error).id;
const stream = await client.GET("/v1/executions/{id}/events", { params: { path: { id } }, parseAs: "stream" });
const cancelled = await client.POST("/v1/executions/{id}/cancel", { params: { path: { id } }, body: {} });
must(cancelled.data, cancelled.error);
const seqs: number[] = [];
let end: Schemas["EndEvent"]["data"] | undefined;
for await (const { event, data } of events(must(stream.data, stream.error) as ReadableStream<Uint8Array>)) {
	if (event === "event") seqs.push((JSON.parse(data) as Schemas["HistoryEvent"]["data"]).seq);
	if (event === "end") end = JSON.parse(data) as Schemas["EndEvent"]["data"];
}
if (seqs.join() !== "1,2" || end?.state !== "cancelled") throw new Error(`events ${seqs}, end ${JSON.stringify(end)}`);

const chat = await client.POST("/v1/chat/completions", {
	body: { messages: [{ role: "user", content: "say hello" }], temperature: 0.5 },
});
const answer = must(chat.data, chat.error);
if (!("choices" in answer)) throw new Error("the answer is a stream");
const said = answer.choices[0]?.message?.content ?? "";
if (!said.includes("hello")) throw new Error(`the answer is ${said}`);
const wrong = await client.POST("/v1/chat/completions", { body: { messages: [] } });
const fault = must(wrong.error, "no error");
if (!("error" in fault) || fault.error.param !== "messages") throw new Error(JSON.stringify(fault));
console.log("ok");
