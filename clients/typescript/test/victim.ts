// A worker that a test kills: node victim.js URL QUEUE NAME. It prints a line for each run and each step.
import { Belay } from "belay-client";
import { Worker } from "belay-client/worker";

const [url, queue, name] = process.argv.slice(2);

new Worker(new Belay({ url: url! }), { queues: [queue!], ttl: "3s", name: name! })
  .register<{ steps: number }>("long", async ({ steps }, run) => {
    console.log(`run ${run.token}`);
    for (let i = 1; i <= steps; i++) {
      await run.step(`step ${i}`, () => {
        console.log(`step ${i}`);
        return i;
      });
      if (name === "first" && i === 3) await new Promise(() => {}); // it is killed here
    }
    return { by: name, token: run.token };
  })
  .run()
  .catch((err: unknown) => {
    console.error(err);
    process.exitCode = 1;
  });
