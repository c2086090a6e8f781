// The account's database: its schema, its transactions, and the bodies of the bucket that its rows name.

import { Refusal, retryAfter } from "./reply.ts";
import type { Settings } from "./settings.ts";

const SCHEMA_VERSION = 1;
/** Ids, tags and digests are lower-case hexadecimal. Times are milliseconds since 1970. */
const SCHEMA = `
CREATE TABLE account (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  schema INTEGER NOT NULL,
  name   TEXT NOT NULL,
  bytes  INTEGER NOT NULL DEFAULT 0,  -- of all stored bodies, blobs and objects
  change INTEGER NOT NULL DEFAULT 0   -- rises with every blob stored or expired; about microseconds since 1970
);
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, label TEXT NOT NULL, scopes TEXT NOT NULL, secret_hash BLOB NOT NULL,
  created_at INTEGER NOT NULL, last_used_at INTEGER, revoked_at INTEGER
) WITHOUT ROWID;
CREATE TABLE streams (
  stream TEXT PRIMARY KEY, head INTEGER NOT NULL DEFAULT 0, acked INTEGER NOT NULL DEFAULT 0,
  count INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, expired_upto INTEGER NOT NULL DEFAULT 0,
  change INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE blobs (
  stream TEXT NOT NULL, seq INTEGER NOT NULL,
  state INTEGER NOT NULL,             -- 0 stored; without a body: 1 acknowledged, 2 expired
  at INTEGER NOT NULL,                -- since when it is in this state
  size INTEGER NOT NULL, tag TEXT NOT NULL, digest TEXT NOT NULL, file TEXT, body BLOB,
  PRIMARY KEY (stream, seq)
) WITHOUT ROWID;
CREATE INDEX blobs_by_age ON blobs(state, at);
CREATE TABLE objects (
  object TEXT PRIMARY KEY, size INTEGER NOT NULL, at INTEGER NOT NULL, digest TEXT NOT NULL, file TEXT, body BLOB
) WITHOUT ROWID;
CREATE TABLE mailboxes (nameplate INTEGER PRIMARY KEY, expires_at INTEGER NOT NULL, claim_hash BLOB);
CREATE TABLE mail (
  nameplate INTEGER NOT NULL, side TEXT NOT NULL, phase TEXT NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (nameplate, side, phase)
) WITHOUT ROWID;
CREATE TABLE unnamed (                -- files of the bucket that no row names: not yet, or no longer
  file TEXT PRIMARY KEY,
  due INTEGER NOT NULL                -- when it may be deleted
) WITHOUT ROWID;
`;

/** A body takes at most two minutes to arrive; what is not named an hour later never will be. */
const UPLOAD_MS = 3_600_000;
const MAX_DELETED = 1000;

export type NewBody = { bytes: Uint8Array; digest: string; resend: boolean; file: string | null };

/** Return the bytes in a buffer of their own, as the database takes them. */
export function copied(bytes: Uint8Array): ArrayBuffer {
  return bytes.slice().buffer as ArrayBuffer;
}

/** Return a body for the database, null if it is in the bucket. */
export function inline(body: NewBody): ArrayBuffer | null {
  return body.file === null ? copied(body.bytes) : null;
}

type Value = SqlStorageValue;
type Row = Record<string, Value>;

export class Store {
  private readonly sql: SqlStorage;

  constructor(
    private readonly storage: DurableObjectStorage, private readonly bucket: R2Bucket, readonly settings: Settings,
  ) {
    this.sql = storage.sql;
  }

  all<T extends Row>(sql: string, ...values: Value[]): T[] {
    return this.sql.exec<T>(sql, ...values).toArray();
  }

  one<T extends Row>(sql: string, ...values: Value[]): T | undefined {
    return this.all<T>(sql, ...values)[0];
  }

  /** Run synchronous work in one transaction: all of it is durable before the answer leaves, or none. */
  transaction<T>(work: () => T): T {
    return this.storage.transactionSync(work);
  }

  /** Return the account's name, null if it was never created. A database without tables is not written. */
  name(): string | null {
    if (!this.one("SELECT 1 FROM sqlite_master WHERE name = 'account'")) return null;
    const found = this.one<{ name: string; schema: number }>("SELECT name, schema FROM account");
    if (found && found.schema > SCHEMA_VERSION) {
      throw new Refusal("unavailable", "the account was written by a newer relay", retryAfter(300));
    }
    return found?.name ?? null;
  }

  create(name: string): void {
    this.sql.exec(SCHEMA);
    this.sql.exec("INSERT INTO account (id, schema, name) VALUES (1, ?, ?)", SCHEMA_VERSION, name);
  }

  /** Return the bytes that the account holds, and its change counter. */
  totals(): { bytes: number; change: number } {
    return this.one<{ bytes: number; change: number }>("SELECT bytes, change FROM account") ?? { bytes: 0, change: 0 };
  }

  addBytes(more: number): void {
    this.sql.exec("UPDATE account SET bytes = bytes + ?", more);
  }

  /** Count bytes, and raise the change counter, also if the clock went back. Return it. */
  raiseChange(now: number, more: number): number {
    const sql = "UPDATE account SET change = max(change + 1, ?), bytes = bytes + ? RETURNING change";
    return this.one<{ change: number }>(sql, now * 1000, more)?.change ?? 0;
  }

  /** Refuse a body for which the account has no room; `replaced` bytes make room. */
  checkRoom(size: number, replaced: number): void {
    const most = this.settings.quota_bytes;
    if (this.totals().bytes - replaced + size > most) {
      throw new Refusal("account-full", `the account may hold ${most} bytes`, retryAfter(300));
    }
  }

  // -- files of the bucket

  /** Write a large body to the bucket. From before until `nameFile` its name is among those to be swept. */
  async upload(bytes: Uint8Array, digest: ArrayBuffer, now: number): Promise<string> {
    const file = `${this.name()}/${crypto.randomUUID()}`;
    this.sql.exec("INSERT INTO unnamed VALUES (?, ?)", file, now + UPLOAD_MS);
    try {
      // The output gate sends this when the name is durable, so that no crash leaves a file that nobody knows of.
      await this.bucket.put(file, bytes, { sha256: digest });
    } catch (error) {
      throw bucketFailed(error);
    }
    return file;
  }

  /** Record, in the transaction of the row that names it, that a file is named. */
  nameFile(file: string | null): void {
    const found = file === null || this.one("DELETE FROM unnamed WHERE file = ? RETURNING file", file);
    if (!found) throw new Refusal("unavailable", "the body came too slowly", retryAfter(5));
  }

  /** Have files deleted that no row names any longer. */
  drop(files: (string | null | undefined)[], now: number): void {
    const sql = "INSERT INTO unnamed VALUES (?, ?) ON CONFLICT (file) DO UPDATE SET due = excluded.due";
    for (const file of files) if (file) this.sql.exec(sql, file, now);
  }

  /** Delete the files that are due. What the bucket refuses now stays for the next alarm. */
  async sweepFiles(now: number): Promise<void> {
    const due = this.all<{ file: string }>("SELECT file FROM unnamed WHERE due <= ? LIMIT ?", now, MAX_DELETED);
    if (!due.length) return;
    await this.bucket.delete(due.map(({ file }) => file));
    for (const { file } of due) this.sql.exec("DELETE FROM unnamed WHERE file = ? AND due <= ?", file, now);
  }

  /** Return when something is to be expired or deleted next, null if nothing is. */
  nextDue(): number | null {
    const ttl = this.settings.ttl_days * 86_400_000;
    const sql =
      "SELECT min(due) AS due FROM (SELECT min(due) AS due FROM unnamed" +
      " UNION ALL SELECT (SELECT min(at) FROM blobs WHERE state = 0) + ?1" +
      " UNION ALL SELECT (SELECT min(at) FROM blobs WHERE state = 1) + ?1" +
      " UNION ALL SELECT (SELECT min(at) FROM blobs WHERE state = 2) + ?1" +
      " UNION ALL SELECT min(expires_at) FROM mailboxes)";
    return this.one<{ due: number | null }>(sql, ttl)?.due ?? null;
  }
}

function bucketFailed(error: unknown): Refusal {
  console.error(JSON.stringify({ level: "error", event: "bucket failed", error: String(error) }));
  return new Refusal("unavailable", "the relay's bucket does not answer", retryAfter(5));
}
