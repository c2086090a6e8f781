// What no account can know alone: who has a nameplate, and how often an address was refused.
//
// The instance `nameplates` has the first, an instance for each address the second, in memory.

import { DurableObject } from "cloudflare:workers";

import { Buckets, readSettings, type Env } from "./settings.ts";

export class Directory extends DurableObject<Env> {
  private readonly sql = this.ctx.storage.sql;
  private readonly settings = readSettings(this.env);
  private readonly refused = new Buckets(this.settings.refused_rate / 60, this.settings.refused_rate);
  private readonly claims = new Buckets(this.settings.pair_rate / 60, this.settings.pair_rate);

  /** Count a refused request, or a claim, of this address. Return the seconds to wait, or 0. */
  take(kind: "refused" | "claims"): number {
    return this[kind].take("");
  }

  /** Give the first free nameplate to an account; null if all are taken. */
  open(candidates: number[], account: string, expiresAt: number): number | null {
    this.prepare();
    this.sql.exec("DELETE FROM nameplates WHERE expires_at <= ?", Date.now());
    for (const nameplate of candidates) {
      const made = this.sql.exec(
        "INSERT INTO nameplates VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING nameplate",
        ...[nameplate, account, expiresAt],
      );
      if (made.toArray().length) return nameplate;
    }
    return null;
  }

  /** Return the account whose mailbox has a nameplate. */
  find(nameplate: number): string | null {
    this.prepare();
    const sql = "SELECT account FROM nameplates WHERE nameplate = ? AND expires_at > ?";
    return this.sql.exec<{ account: string }>(sql, nameplate, Date.now()).toArray()[0]?.account ?? null;
  }

  close(nameplate: number, account: string): void {
    this.prepare();
    this.sql.exec("DELETE FROM nameplates WHERE nameplate = ? AND account = ?", nameplate, account);
  }

  /** Write something, to see whether anything can be written. */
  probe(): void {
    this.sql.exec("CREATE TABLE IF NOT EXISTS probe (id INTEGER PRIMARY KEY, at INTEGER)");
    this.sql.exec("INSERT OR REPLACE INTO probe VALUES (1, ?)", Date.now());
  }

  /** Create the table. The instances that count addresses have none, so nothing of them is stored. */
  private prepare(): void {
    this.sql.exec(
      "CREATE TABLE IF NOT EXISTS nameplates (nameplate INTEGER PRIMARY KEY, account TEXT, expires_at INTEGER)",
    );
  }
}

/** Return the counter of an address. IPv6 clients count by their /64, because each has all of it. */
export function addressOf(env: Env, request: Request): DurableObjectStub<Directory> {
  const named = request.headers.get("cf-connecting-ip") ?? "";
  return env.DIRECTORY.get(env.DIRECTORY.idFromName(`address ${named.includes(":") ? network64(named) : named}`));
}

function network64(address: string): string {
  const [left = "", right = ""] = address.toLowerCase().split("::");
  const head = left.split(":");
  const missing = address.includes("::") ? 8 - head.length - right.split(":").length : 0;
  const groups = [...head, ...Array<string>(Math.max(0, missing)).fill("0"), ...right.split(":")];
  return groups.slice(0, 4).map((group) => group.replace(/^0+(?=.)/, "") || "0").join(":");
}

export function nameplates(env: Env): DurableObjectStub<Directory> {
  return env.DIRECTORY.get(env.DIRECTORY.idFromName("nameplates"));
}
