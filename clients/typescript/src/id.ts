const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";

/** newExecutionId makes the id of a new execution: a UUIDv7 as Belay writes it. A submit under it may be repeated. */
export const newExecutionId = (): string => "ex_" + timed();

/** newWorkerId makes the id of a new worker's session. */
export const newWorkerId = (): string => "wk_" + timed();

/** newOpId makes the id of one write, so that the write is done once however often it is sent. */
export const newOpId = (): string => text(random());

/** newKey makes a value for the header Idempotency-Key. */
export const newKey = newOpId;

// crypto.randomUUID is missing on pages that were not loaded by HTTPS; getRandomValues is there.
const random = (): Uint8Array => crypto.getRandomValues(new Uint8Array(16));

function timed(): string {
  const bytes = random();
  let n = BigInt(Date.now());
  for (let i = 5; i >= 0; i--, n >>= 8n) bytes[i] = Number(n & 0xffn);
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return text(bytes);
}

/** text writes 16 bytes as 26 letters and digits. */
function text(bytes: Uint8Array): string {
  let value = bytes.reduce((all, b) => (all << 8n) | BigInt(b), 0n);
  let out = "";
  for (let i = 0; i < 26; i++, value >>= 5n) out = alphabet[Number(value & 31n)]! + out;
  return out;
}
