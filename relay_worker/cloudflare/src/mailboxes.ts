// Pairing mailboxes: all SQL statements on them. See docs/spec/relay-http.md, section 7.

import type { Mail } from "./call.ts";
import { Refusal, retryAfter, type Stored } from "./reply.ts";
import { copied, type Store } from "./store.ts";
import { isSame } from "./tokens.ts";

const MAX_MAILBOXES = 8;
const MAX_MAIL = 16;
export const MAX_MAIL_BYTES = 16_384;
export const MAILBOX_MS = 600_000;

export type Mailbox = { nameplate: number; expires_at: number; claim_hash: ArrayBuffer | null };

/** Return the refusal for a mailbox that is closed, expired, or was never opened. */
export function gone(nameplate: number, headers: Record<string, string> = {}): Refusal {
  return new Refusal("no-mailbox", `there is no mailbox ${nameplate}; a mailbox is open for ten minutes`, headers);
}

/** Return random candidates for a nameplate: short ones first, longer ones if those are taken. */
export function candidates(): number[] {
  const random = [...crypto.getRandomValues(new Uint32Array(24))];
  return random.map((number, at) => number % 10 ** Math.min(6, 1 + at) || 10);
}

/** Refuse another mailbox while eight are open. */
export function checkRoom(store: Store, now: number): void {
  const sql = "SELECT count(*) AS n, min(expires_at) AS first FROM mailboxes WHERE expires_at > ?";
  const { n, first } = store.one<{ n: number; first: number }>(sql, now) ?? { n: 0, first: now };
  if (n >= MAX_MAILBOXES) {
    throw new Refusal("too-many-mailboxes", `the account has ${n} mailboxes open`, retryAfter((first - now) / 1000));
  }
}

/** Open a mailbox whose nameplate the directory has given. */
export function openMailbox(store: Store, nameplate: number, now: number): void {
  checkRoom(store, now);
  closeMailbox(store, nameplate);
  store.all("INSERT INTO mailboxes (nameplate, expires_at) VALUES (?, ?)", nameplate, now + MAILBOX_MS);
}

/** Return the mailbox, unless it is closed or expired. */
export function findMailbox(store: Store, nameplate: number, now: number): Mailbox | null {
  return store.one<Mailbox>("SELECT * FROM mailboxes WHERE nameplate = ? AND expires_at > ?", nameplate, now) ?? null;
}

/** Bind a mailbox to a claim. Return false if it is bound to this one already. */
export function claimMailbox(store: Store, box: Mailbox, hash: ArrayBuffer): boolean {
  if (isSame(hash, box.claim_hash)) return false;
  if (box.claim_hash) {
    throw new Refusal("mailbox-claimed", "somebody else has claimed this mailbox; close it and pair again");
  }
  store.all("UPDATE mailboxes SET claim_hash = ? WHERE nameplate = ?", hash, box.nameplate);
  return true;
}

/** Write a message. It cannot be replaced. */
export function putMail(store: Store, mail: Mail, bytes: Uint8Array, digest: string): boolean {
  const { nameplate, side, phase } = mail;
  const known = findMail(store, mail);
  if (known && known.digest !== digest) throw new Refusal("mail-conflict", "another message is there already");
  if (known) return false;
  const sql = "SELECT count(*) AS n FROM mail WHERE nameplate = ? AND side = ?";
  if ((store.one<{ n: number }>(sql, nameplate, side)?.n ?? 0) >= MAX_MAIL) {
    throw new Refusal("mailbox-full", `a side writes at most ${MAX_MAIL} messages`);
  }
  store.all(
    "INSERT INTO mail (nameplate, side, phase, digest, body) VALUES (?, ?, ?, ?, ?)",
    ...[nameplate, side, phase, digest, copied(bytes)],
  );
  return true;
}

export function findMail(store: Store, { nameplate, side, phase }: Mail): Stored | null {
  const sql =
    "SELECT length(body) AS size, digest, NULL AS tag, NULL AS file, body FROM mail" +
    " WHERE nameplate = ? AND side = ? AND phase = ?";
  return store.one<Stored>(sql, nameplate, side, phase) ?? null;
}

/** Delete a mailbox and its messages. */
export function closeMailbox(store: Store, nameplate: number): void {
  store.all("DELETE FROM mail WHERE nameplate = ?", nameplate);
  store.all("DELETE FROM mailboxes WHERE nameplate = ?", nameplate);
}

export function expireMailboxes(store: Store, now: number): void {
  const old = store.all<Mailbox>("SELECT * FROM mailboxes WHERE expires_at <= ?", now);
  for (const { nameplate } of old) closeMailbox(store, nameplate);
}
