const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";

/** newExecutionId makes the id of a new execution: a UUIDv7 as Belay writes it. A submit under it may be repeated. */
export function newExecutionId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let n = BigInt(Date.now());
  for (let i = 5; i >= 0; i--, n >>= 8n) bytes[i] = Number(n & 0xffn);
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  let value = bytes.reduce((all, b) => (all << 8n) | BigInt(b), 0n);
  let text = "";
  for (let i = 0; i < 26; i++, value >>= 5n) text = alphabet[Number(value & 31n)]! + text;
  return "ex_" + text;
}
