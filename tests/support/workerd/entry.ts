// The relay as it is deployed, with a clock that a test moves and a bucket that fails at random.

import relay, { Account as RealAccount, Directory } from "../../../relay_worker/cloudflare/src/worker.ts";
import type { Env } from "../../../relay_worker/cloudflare/src/settings.ts";

export { Directory };

const realNow = Date.now;
let fixed: number | null = null;
Date.now = () => fixed ?? realNow();

/** Fail before or after each call of the bucket, as often as `FAULTS` says. */
function faulty(bucket: R2Bucket, rate: number): R2Bucket {
  const fail = () => {
    if (Math.random() < rate) throw new Error("injected");
  };
  return new Proxy(bucket, {
    get(target, name) {
      const found = Reflect.get(target, name) as (...values: unknown[]) => Promise<unknown>;
      return async (...values: unknown[]) => {
        fail();
        const result = await found.apply(target, values);
        fail();
        return result;
      };
    },
  });
}

export class Account extends RealAccount {
  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env["FAULTS"] ? { ...env, BODIES: faulty(env.BODIES, Number(env["FAULTS"])) } : env);
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const url = new URL(request.url);
    if (url.pathname !== "/test/clock") return relay.fetch(request, env);
    const asked = url.searchParams.get("now");
    if (asked) fixed = Number(asked);
    return new Response(String(Date.now()));
  },
};
