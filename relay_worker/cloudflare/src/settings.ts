// Settings of the relay: variables of the Worker, named as the Python relay's. See docs/how-to/relay-on-cloudflare.md.

import type { Account } from "./account.ts";
import type { Directory } from "./directory.ts";

export interface Env {
  ACCOUNTS: DurableObjectNamespace<Account>;
  DIRECTORY: DurableObjectNamespace<Directory>;
  BODIES: R2Bucket;
  METRICS?: AnalyticsEngineDataset;
  ADMIN_SECRET?: string;
  [variable: string]: unknown;
}

const DEFAULTS = {
  max_body: 8_388_756,
  ttl_days: 30,
  quota_bytes: 4 * 2 ** 30,
  max_blobs: 10_000,
  max_streams: 4096,
  rate: 1000,
  refused_rate: 60,
  pair_rate: 5,
  body_idle: 10,
  body_total: 120,
  large_uploads: 4,
};

export type Settings = typeof DEFAULTS;

/** Read `CRYSTAL_RELAY_*`; a value that is no number is an error of the deployment. */
export function readSettings(env: Env): Settings {
  const found = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS) as (keyof Settings)[]) {
    const text = env[`CRYSTAL_RELAY_${name.toUpperCase()}`];
    if (text === undefined) continue;
    found[name] = Number(text);
    if (!(found[name] >= 0)) throw new Error(`CRYSTAL_RELAY_${name.toUpperCase()} is not a number`);
  }
  return found;
}

/** Token buckets by key, in memory. `rate` is refilled each second; 0 is no limit. */
export class Buckets {
  private readonly filled = new Map<string, { left: number; at: number }>();

  constructor(private readonly rate: number, private readonly burst: number) {}

  /** Take one token. Return 0, or the seconds until there is one. */
  take(key: string): number {
    if (this.rate <= 0) return 0;
    const now = Date.now();
    const burst = Math.max(1, this.burst);
    const known = this.filled.get(key) ?? { left: burst, at: now };
    const left = Math.min(burst, known.left + (Math.max(0, now - known.at) / 1000) * this.rate);
    this.filled.delete(key);
    this.filled.set(key, { left: left < 1 ? left : left - 1, at: now });
    for (const oldest of this.filled.keys()) if (this.filled.size > 10_000) this.filled.delete(oldest);
    return left < 1 ? (1 - left) / this.rate : 0;
  }
}
