// Runs the checks of a client against the server whose address is the argument.
export const url = process.argv[2];

/** job waits for the end of a job and returns the job. */
export const job = async (id) => (await fetch(`${url}/jobs/${id}?wait=30`)).json();

/** jobs returns the number of executions on the server. */
export const jobs = async () => (await (await fetch(`${url}/v1/executions?limit=1000`)).json()).executions.length;

/** load waits until the number of running jobs is as wanted. */
export const load = async (wanted) => {
  while ((await (await fetch(`${url}/health`)).json()).active !== wanted);
};

/** runAll runs checks, and ends the process at the first that fails. */
export async function runAll(checks) {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (e) {
      console.error(`${name}:`, e);
      process.exit(1);
    }
    console.log("ok", name);
  }
}
