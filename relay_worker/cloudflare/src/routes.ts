// The routes of the relay, in the order of docs/spec/relay-http.md.

import { Refusal } from "./reply.ts";

export type Scheme = "bearer" | "claim";

type Route = { path: string; methods: string[]; schemes: Scheme[] };

const BEARER: Scheme[] = ["bearer"];
const EITHER: Scheme[] = ["bearer", "claim"];

const ROUTES: Route[] = [
  { path: "/v1/streams/{stream}/blobs/{seq}", methods: ["GET", "PUT"], schemes: BEARER },
  { path: "/v1/streams", methods: ["GET"], schemes: BEARER },
  { path: "/v1/streams/{stream}/blobs", methods: ["GET"], schemes: BEARER },
  { path: "/v1/streams/{stream}/ack", methods: ["POST"], schemes: BEARER },
  { path: "/v1/streams/{stream}", methods: ["GET"], schemes: BEARER },
  { path: "/v1/objects/{id}", methods: ["DELETE", "GET", "PUT"], schemes: BEARER },
  { path: "/v1/objects", methods: ["GET"], schemes: BEARER },
  { path: "/v1/tokens", methods: ["GET", "POST"], schemes: BEARER },
  { path: "/v1/tokens/{token_id}", methods: ["DELETE"], schemes: BEARER },
  { path: "/v1/pair", methods: ["POST"], schemes: BEARER },
  { path: "/v1/pair/{nameplate}", methods: ["DELETE"], schemes: EITHER },
  { path: "/v1/pair/{nameplate}/claim", methods: ["PUT"], schemes: ["claim"] },
  { path: "/v1/pair/{nameplate}/{side}/{phase}", methods: ["GET", "PUT"], schemes: EITHER },
  { path: "/healthz", methods: ["GET"], schemes: [] },
  { path: "/readyz", methods: ["GET"], schemes: [] },
  { path: "/openapi.json", methods: ["GET"], schemes: [] },
  { path: "/openapi.yaml", methods: ["GET"], schemes: [] },
  { path: "/admin/tokens", methods: ["POST"], schemes: [] },
  { path: "/admin/tokens/{token_id}", methods: ["DELETE"], schemes: [] },
];

const PATTERNS = ROUTES.map((route) => {
  const pattern = route.path.replace(/\./g, "\\.").replace(/{(\w+)}/g, "(?<$1>[^/]+)");
  return { route, pattern: new RegExp(`^${pattern}$`) };
});

export interface Place {
  /** Method and pattern, e.g. `GET /v1/streams`; HEAD is GET here. */
  name: string;
  parts: Record<string, string>;
  schemes: Scheme[];
}

/** Find the route of a request. */
export function findPlace(method: string, path: string): Place {
  for (const { route, pattern } of PATTERNS) {
    const found = pattern.exec(path);
    if (!found) continue;
    const asked = method === "HEAD" ? "GET" : method;
    if (!route.methods.includes(asked)) {
      const allow = [...route.methods, ...(route.methods.includes("GET") ? ["HEAD"] : [])].sort().join(", ");
      throw new Refusal("method-not-allowed", `here: ${allow}`, { allow });
    }
    return { name: `${asked} ${route.path}`, parts: { ...found.groups }, schemes: route.schemes };
  }
  throw new Refusal("not-found", "there is no such route");
}

/** Return path and query of a request as they were sent. */
export function splitUrl(url: string): [path: string, query: string] {
  const [, path = "", query = ""] = /^https?:\/\/[^/?#]*([^?#]*)\??([^#]*)/.exec(url) ?? [];
  return [path || "/", query];
}
