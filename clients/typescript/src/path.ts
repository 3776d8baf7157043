import { invalid } from "./error.js";

/**
 * segment is a value as one segment of a path. It refuses values that a URL would drop or resolve, such as "..", since
 * the request would then go to another route.
 */
export function segment(value: unknown): string {
  const text = String(value);
  if (text === "" || text === "." || text === "..") throw invalid(`${JSON.stringify(text)} is not valid in a path`);
  try {
    return encodeURIComponent(text);
  } catch {
    throw invalid("half of a surrogate pair is not valid in a path");
  }
}

/** fill replaces the parameters of a path, such as {id}, by their values. */
export function fill(path: string, values: Record<string, unknown>): string {
  return path.replace(/\{([^{}]+)\}/g, (_, name: string) => segment(values[name] ?? ""));
}

/** baseOf checks the address of a server, and returns it without a slash at its end. */
export function baseOf(address: string): string {
  const wanted = "a server is http://HOST:PORT or https://HOST";
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw invalid(wanted);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw invalid(wanted);
  if (url.username !== "" || url.password !== "") {
    throw invalid("the server's address must not contain a key; give the key separately");
  }
  if (url.search !== "" || url.hash !== "") throw invalid("a server's address has no query and no fragment");
  return url.origin + url.pathname.replace(/\/+$/, "");
}

/** header checks a value of a header. The error does not contain the value, which may be a secret. */
export function header(name: string, value: string): string {
  if (!/^[\x20-\x7e]+$/.test(value)) throw invalid(`${name} has a character that no header may have`);
  return value;
}
