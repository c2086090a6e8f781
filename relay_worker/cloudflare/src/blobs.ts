// Streams and blobs: all SQL statements on them. See docs/spec/relay-http.md, section 3.

import { Refusal, hex, retryAfter, type Stored } from "./reply.ts";
import { inline, type NewBody, type Store } from "./store.ts";

const HEADER_BYTES = 116;
const TAG_BYTES = 32;
const MIN_BLOB = HEADER_BYTES + TAG_BYTES;
const [STORED, ACKED, EXPIRED] = [0, 1, 2];
const MAX_EXPIRED = 1000;
const SHOWN = "stream, head, acked, count, bytes, expired_upto";

export type StreamState = {
  stream: string; head: number; acked: number; count: number; bytes: number; expired_upto: number;
};

/** Refuse what cannot be blob `seq` of `stream`, and return its tag. See docs/spec/envelope.md. */
export function checkEnvelope(body: Uint8Array, stream: string, seq: number): string {
  const refuse = (detail: string) => new Refusal("bad-envelope", detail);
  const size = body.length;
  if (size < MIN_BLOB) throw refuse(`a sealed blob has at least ${MIN_BLOB} bytes, this has ${size}`);
  const view = new DataView(body.buffer, body.byteOffset, size);
  if (hex(body.subarray(0, 4)) !== "43524231") throw refuse("the body does not begin with CRB1");
  if (body[4] !== 1) throw refuse(`envelope version ${body[4]} is not known here`);
  const announced = view.getUint32(112) + MIN_BLOB;
  if (announced !== size) throw refuse(`the header announces ${announced} bytes, the body has ${size}`);
  if (hex(body.subarray(24, 40)) !== stream) throw refuse("the header names another stream than the URL");
  const inside = view.getBigUint64(40);
  if (inside !== BigInt(seq)) throw refuse(`the header has seq ${inside}, the URL ${seq}`);
  return hex(body.subarray(size - TAG_BYTES));
}

type Known = { state: number; size: number; tag: string; digest: string; file: string | null };

/** Refuse a new stream if the account is full, or one prefix has a quarter of it: a stolen token leaves room for others. */
function checkStreams(store: Store, stream: string, most: number): void {
  const sql = "SELECT count(*) AS n, coalesce(sum(substr(stream, 1, 16) = ?), 0) AS same FROM streams";
  const { n, same } = store.one<{ n: number; same: number }>(sql, stream.slice(0, 16)) ?? { n: 0, same: 0 };
  if (n >= most) throw new Refusal("too-many-streams", `the account may have ${most} streams`);
  const share = Math.max(1, Math.floor(most / 4));
  if (same >= share) throw new Refusal("too-many-streams", `one prefix may have ${share} streams`);
}

/** Store a blob. Return false if it is there already. Runs in a transaction. */
export function putBlob(store: Store, stream: string, seq: number, tag: string, body: NewBody, now: number): boolean {
  const sql = "SELECT state, size, tag, digest, file FROM blobs WHERE stream = ? AND seq = ?";
  const known = store.one<Known>(sql, stream, seq);
  const again = body.resend || known?.state === EXPIRED;
  if (known && (known.tag !== tag || (known.digest !== body.digest && !again))) {
    throw new Refusal("blob-conflict", `another blob is or was stored as ${seq}`);
  }
  if (known && !again) return false;
  const replaced = known?.state === STORED ? known : null;
  const state = stateOf(store, stream);
  const { max_blobs, max_streams } = store.settings;
  if (!replaced && state.count >= max_blobs) {
    throw new Refusal("stream-full", `a stream may hold ${max_blobs} blobs`, retryAfter(300));
  }
  const size = body.bytes.length;
  const more = size - (replaced?.size ?? 0);
  store.checkRoom(size, replaced?.size ?? 0);
  if (state.head === 0) checkStreams(store, stream, max_streams);
  store.nameFile(body.file);
  store.all(
    "INSERT OR REPLACE INTO blobs (stream, seq, state, at, size, tag, digest, file, body)" +
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ...[stream, seq, STORED, now, size, tag, body.digest, body.file, inline(body)],
  );
  const change = store.raiseChange(now, more);
  store.all(
    "INSERT INTO streams (stream, head, count, bytes, change) VALUES (?, ?, ?, ?, ?)" +
      " ON CONFLICT (stream) DO UPDATE SET head = max(head, excluded.head), count = count + excluded.count," +
      " bytes = bytes + excluded.bytes, change = excluded.change",
    ...[stream, seq, replaced ? 0 : 1, more, change],
  );
  store.drop([replaced?.file], now);
  return true;
}

/** Delete the bodies up to and including `upto`. Runs in a transaction. */
export function acknowledge(store: Store, stream: string, upto: number, now: number): void {
  settle(store, { stream, state: ACKED, acked: upto, now }, "seq <= ?", upto);
}

type Settled = { stream: string; state: number; acked: number; now: number };

/** Turn stored blobs of one stream into tombstones. The index finds what is stored, past the tombstones. */
function settle(store: Store, to: Settled, where: string, number: number): void {
  const { stream, state, acked, now } = to;
  const found = store.all<{ seq: number; size: number; file: string | null }>(
    `SELECT seq, size, file FROM blobs INDEXED BY blobs_by_age WHERE state = ${STORED} AND stream = ? AND ${where}`,
    ...[stream, number],
  );
  const settled = "UPDATE blobs SET state = ?, at = ?, file = NULL, body = NULL WHERE stream = ? AND seq = ?";
  for (const { seq } of found) store.all(settled, state, now, stream, seq);
  const size = found.reduce((sum, one) => sum + one.size, 0);
  store.all(
    "UPDATE streams SET count = count - ?1, bytes = bytes - ?2, acked = max(acked, min(head, ?3))" +
      " WHERE stream = ?4 AND (?1 > 0 OR acked < min(head, ?3))",
    ...[found.length, size, acked, stream],
  );
  if (found.length) store.addBytes(-size);
  store.drop(found.map(({ file }) => file), now);
}

/** Expire blobs that nobody read in time, and forget old tombstones. Return the streams of those that expired. */
export function expire(store: Store, now: number): string[] {
  const before = now - store.settings.ttl_days * 86_400_000;
  const old = "SELECT stream, seq FROM blobs WHERE state = ? AND at <= ? ORDER BY at LIMIT ?";
  const found = store.all<{ stream: string; seq: number }>(old, STORED, before, MAX_EXPIRED);
  for (const { stream, seq } of found) settle(store, { stream, state: EXPIRED, acked: 0, now }, "seq = ?", seq);
  const change = found.length ? store.raiseChange(now, 0) : 0;
  const told = "UPDATE streams SET change = ?, expired_upto = max(expired_upto, ?) WHERE stream = ?";
  for (const { stream, seq } of found) store.all(told, change, seq, stream);
  for (const state of [ACKED, EXPIRED]) {
    store.all(`DELETE FROM blobs WHERE (stream, seq) IN (${old})`, state, before, MAX_EXPIRED);
  }
  return found.map(({ stream }) => stream);
}

/** Return the state of a stream; zeros if nothing was ever stored in it. */
export function stateOf(store: Store, stream: string): StreamState {
  const zeros = { stream, head: 0, acked: 0, count: 0, bytes: 0, expired_upto: 0 };
  return store.one<StreamState>(`SELECT ${SHOWN} FROM streams WHERE stream = ?`, stream) ?? zeros;
}

/** Return a page of a stream. */
export function listBlobs(store: Store, stream: string, after: number, limit: number): object {
  const where = `stream = ? AND seq > ? AND state = ${STORED}`;
  const sql = `SELECT seq, size, tag FROM blobs WHERE ${where} ORDER BY seq LIMIT ?`;
  const { head, acked, expired_upto } = stateOf(store, stream);
  return { blobs: store.all(sql, stream, after, limit), head, acked, expired_upto };
}

type StreamList = { change: number; streams: StreamState[] };

/** Return the account's change counter, and its streams under these prefixes that changed since, by id. */
export function listStreams(store: Store, prefixes: string[], changedAfter: number): StreamList {
  const { change } = store.totals();
  const since = changedAfter <= change ? changedAfter : 0; // a number of a database that was restored
  const sql = `SELECT ${SHOWN} FROM streams WHERE stream BETWEEN ? AND ? AND (change > ? OR ? = 0) ORDER BY stream`;
  const streams = prefixes.flatMap((prefix) => store.all<StreamState>(sql, prefix, `${prefix}~`, since, since));
  return { change, streams };
}

/** Find a stored blob. */
export function findBlob(store: Store, stream: string, seq: number): Stored {
  const sql = `SELECT size, digest, tag, file, body FROM blobs WHERE stream = ? AND seq = ? AND state = ${STORED}`;
  const found = store.one<Stored>(sql, stream, seq);
  if (!found) throw new Refusal("no-blob", `there is no blob ${seq}`);
  return found;
}
