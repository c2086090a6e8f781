// Objects: all SQL statements on them. See docs/spec/relay-http.md, section 4.

import { Refusal, type Stored } from "./reply.ts";
import { inline, type NewBody, type Store } from "./store.ts";

type Known = { size: number; digest: string; file: string | null };

/** Store a write-once object. Return false if it is there already. Runs in a transaction. */
export function putObject(store: Store, id: string, body: NewBody, now: number): boolean {
  const known = store.one<Known>("SELECT size, digest, file FROM objects WHERE object = ?", id);
  if (known && known.digest !== body.digest) {
    throw new Refusal("object-conflict", "another object is stored under this id");
  }
  if (known && !body.resend) return false;
  const size = body.bytes.length;
  store.checkRoom(size, known?.size ?? 0);
  store.nameFile(body.file);
  store.all(
    "INSERT OR REPLACE INTO objects (object, size, at, digest, file, body) VALUES (?, ?, ?, ?, ?, ?)",
    ...[id, size, now, body.digest, body.file, inline(body)],
  );
  store.addBytes(size - (known?.size ?? 0));
  store.drop([known?.file], now);
  return true;
}

/** Delete an object if it exists. Runs in a transaction. */
export function deleteObject(store: Store, id: string, now: number): void {
  const gone = store.one<Known>("DELETE FROM objects WHERE object = ? RETURNING size, digest, file", id);
  if (!gone) return;
  store.addBytes(-gone.size);
  store.drop([gone.file], now);
}

export function listObjects(store: Store, after: string, limit: number): object {
  const sql = "SELECT object AS id, size, at AS created_at FROM objects WHERE object > ? ORDER BY object LIMIT ?";
  return { objects: store.all(sql, after, limit) };
}

export function findObject(store: Store, id: string): Stored {
  const sql = "SELECT size, digest, digest AS tag, file, body FROM objects WHERE object = ?";
  const found = store.one<Stored>(sql, id);
  if (!found) throw new Refusal("no-object", "there is no such object");
  return found;
}
