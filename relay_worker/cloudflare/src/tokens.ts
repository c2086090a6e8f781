// Tokens: their form, their check, their rows. Only the SHA-256 of a secret is stored.
//
// The first half of a token's id names its account, so that a request finds the account's Durable Object by itself.

import { Refusal } from "./reply.ts";
import type { Store } from "./store.ts";

const TOKEN = /^(crt_([0-9a-z]{16})_([A-Za-z0-9_-]{43}))_([0-9a-f]{8})$/;
const SCOPE = /^(?:home|pair|objects:(?:read|write)|(?:write|read|ack):[0-9a-f]{16})$/;
const LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz";
const MAX_SCOPES = 64;
const MAX_LABEL = 200;
const MAX_TOKENS = 1000;
export const ACCOUNT_LETTERS = 8;

export type Token = {
  id: string; label: string; scopes: string; secret_hash: ArrayBuffer; created_at: number;
  last_used_at: number | null; revoked_at: number | null;
};

export type ParsedToken = { id: string; secret: string; account: string };

/** Split a token; null if its form or its checksum is wrong. */
export function parseToken(text: string): ParsedToken | null {
  const [, named = "", id = "", secret = "", checksum] = TOKEN.exec(text) ?? [];
  if (!named || crc32(named) !== checksum) return null;
  return { id, secret, account: id.slice(0, ACCOUNT_LETTERS) };
}

export async function hashSecret(secret: string): Promise<ArrayBuffer> {
  return crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret));
}

/** Compare in constant time; without a stored hash it takes as long and is false. */
export function isSame(hash: ArrayBuffer, kept: ArrayBuffer | null): boolean {
  return crypto.subtle.timingSafeEqual(hash, kept ?? new ArrayBuffer(hash.byteLength)) && kept !== null;
}

/** Return letters that name an account, or a token within one. Unequal remainders are no loss: ids are no secrets. */
export function randomLetters(): string {
  return [...crypto.getRandomValues(new Uint8Array(ACCOUNT_LETTERS))].map((byte) => LETTERS[byte % 36]).join("");
}

export type TokenRequest = { label: string; scopes: string[] };

/** Check what a new token is for. */
export function checkRequest(asked: Record<string, unknown>): TokenRequest {
  const { label, scopes } = asked;
  if (typeof label !== "string" || !Array.isArray(scopes) || !scopes.every((one) => typeof one === "string")) {
    throw new Refusal("bad-request", "the JSON body needs a label and a list of scopes");
  }
  if (!label || [...label].length > MAX_LABEL || /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(label)) {
    throw new Refusal("bad-request", `a label has 1 to ${MAX_LABEL} characters and no controls`);
  }
  if (!scopes.length || scopes.length > MAX_SCOPES || new Set(scopes).size < scopes.length) {
    throw new Refusal("bad-request", `a token has 1 to ${MAX_SCOPES} scopes, each once`);
  }
  if (!scopes.every((scope) => SCOPE.test(scope))) {
    const known = "home, pair, objects:read, objects:write, or write:, read:, ack: with 16 hexadecimal digits";
    throw new Refusal("bad-request", `a scope is ${known}`);
  }
  return { label, scopes };
}

/** Make a token and store its hash. The answer alone has its text. */
export async function addToken(store: Store, account: string, asked: TokenRequest, now: number): Promise<object> {
  const id = account + randomLetters();
  const secret = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=/g, "");
  const hash = await hashSecret(secret);
  const valid = store.one<{ n: number }>("SELECT count(*) AS n FROM tokens WHERE revoked_at IS NULL")?.n ?? 0;
  if (valid >= MAX_TOKENS) {
    throw new Refusal("too-many-tokens", `the account may have ${MAX_TOKENS} valid tokens; revoke some`);
  }
  store.all(
    "INSERT INTO tokens (id, label, scopes, secret_hash, created_at) VALUES (?, ?, ?, ?, ?)",
    ...[id, asked.label, asked.scopes.join(" "), hash, now],
  );
  const text = `crt_${id}_${secret}`;
  return { id, token: `${text}_${crc32(text)}`, ...asked };
}

export function findToken(store: Store, id: string): Token | null {
  return store.one<Token>("SELECT * FROM tokens WHERE id = ?", id) ?? null;
}

/** Return the account's tokens, oldest first, without the hashes of their secrets. */
export function listTokens(store: Store): object[] {
  const found = store.all<Token>("SELECT * FROM tokens ORDER BY created_at, id");
  return found.map(({ secret_hash, ...shown }) => ({ ...shown, scopes: shown.scopes.split(" ") }));
}

/** Revoke a token. An earlier revocation keeps its time. */
export function revokeToken(store: Store, id: string, now: number): void {
  const sql = "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? RETURNING id";
  if (!store.one(sql, now, id)) throw new Refusal("no-token", "the account has no such token");
}

/** Return the stream prefixes that scopes name; `home` has the empty one. */
export function prefixesOf(scopes: string[]): string[] {
  if (scopes.includes("home")) return [""];
  const named = scopes.filter((scope) => /^(write|read|ack):/.test(scope)).map((scope) => scope.split(":")[1] ?? "");
  return [...new Set(named)].sort();
}

function crc32(text: string): string {
  let sum = 0xffffffff;
  for (let at = 0; at < text.length; at++) {
    sum ^= text.charCodeAt(at);
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ((sum ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}
