// The front: every request arrives here, finds its account, and gets the headers that every answer has.

import document from "../../openapi.json";
import yaml from "../../openapi.yaml";

import { Account } from "./account.ts";
import { Call, NAMEPLATE, SECONDS, TOKEN_ID, drain, overRate, within } from "./call.ts";
import { Directory, addressOf, nameplates } from "./directory.ts";
import { gone } from "./mailboxes.ts";
import { COUNTED, COUNTS, FILE, NOTHING, Refusal, json, noContent, retryAfter, sized } from "./reply.ts";
import { unauthenticated } from "./reply.ts";
import { readSettings, type Env } from "./settings.ts";
import { ACCOUNT_LETTERS, checkRequest, hashSecret, isSame, parseToken, randomLetters } from "./tokens.ts";

export { Account, Directory };

const ALWAYS = { "crystal-relay-version": "1", "cache-control": "no-store", "x-content-type-options": "nosniff" };
const CLAIM = /^[A-Za-z0-9_-]{43}$/;
const ACCOUNT = /^[0-9a-z]{8}$/;
const MIN_ADMIN_SECRET = 32;

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const began = Date.now();
    const requestId = crypto.randomUUID();
    let call: Call | null = null;
    let response: Response;
    try {
      call = new Call(request);
      response = await counted(await answer(call, env), request, env);
    } catch (error) {
      response = await counted(failed(error, requestId), request, env);
    }
    await drain(request);
    note(env, call, response.status, requestId, Date.now() - began);
    const headers = new Headers(response.headers);
    for (const [name, value] of Object.entries({ ...ALWAYS, "x-request-id": requestId })) headers.set(name, value);
    return new Response(request.method === "HEAD" ? null : response.body, { status: response.status, headers });
  },
} satisfies ExportedHandler<Env>;

async function answer(call: Call, env: Env): Promise<Response> {
  if (call.place.name.includes(" /admin/")) return administer(call, env);
  if (!call.place.schemes.length) return open(call, env);
  call.checkVersion();
  const account = await accountOf(call, env);
  return account === null ? noContent(COUNTED) : ask(call, stubOf(env, account), env);
}

/** Ask the account; again after each change while the client waits, and once more if a large body is gone. */
async function ask(call: Call, account: DurableObjectStub<Account>, env: Env): Promise<Response> {
  let missing = "";
  let endsAt: number | null = null;
  for (;;) {
    const response = await account.fetch(passedOn(call, endsAt === null || Date.now() < endsAt));
    if (response.webSocket) {
      endsAt ??= Date.now() + call.query("wait", SECONDS, 0) * 1000;
      if (await isChanged(response.webSocket, endsAt - Date.now())) continue;
      const nothing: unknown = JSON.parse(response.headers.get(NOTHING) ?? "null");
      return nothing === null ? noContent() : json(nothing);
    }
    const named = response.headers.get(FILE);
    if (named === null) return response;
    const [size = "", file = ""] = named.split(" ");
    if (named === missing) throw new Refusal("body-lost", "the relay has lost these bytes; they must be sent again");
    missing = named;
    const found = await env.BODIES.get(file);
    if (found?.size !== Number(size)) continue;
    const headers = new Headers(response.headers);
    headers.delete(FILE);
    headers.set("content-length", size);
    return new Response(found.body, { headers });
  }
}

/** Return the request as the account gets it; one that may wait asks for a WebSocket. */
function passedOn({ request }: Call, mayWait: boolean): Request {
  if (!["GET", "HEAD"].includes(request.method)) return request;
  const headers = new Headers(request.headers);
  headers.delete("upgrade");
  if (mayWait && /[?&]wait=[0-9.]*[1-9]/.test(request.url)) headers.set("upgrade", "websocket");
  return new Request(request.url, { method: "GET", headers });
}

/** Wait until the account closes the socket, which is its word for a change. */
async function isChanged(socket: WebSocket, milliseconds: number): Promise<boolean> {
  socket.accept();
  const closed = new Promise<true>((resolve) => {
    for (const event of ["close", "error"] as const) socket.addEventListener(event, () => resolve(true));
  });
  const changed = await within(milliseconds, closed);
  if (!changed) socket.close(1000);
  return changed ?? false;
}

function stubOf(env: Env, account: string): DurableObjectStub<Account> {
  return env.ACCOUNTS.get(env.ACCOUNTS.idFromName(account));
}

/** Find the account that a token names, or that has the mailbox of a claim; null to close one that is not there. */
async function accountOf(call: Call, env: Env): Promise<string | null> {
  const [scheme, secret] = call.credentials();
  const { schemes, name } = call.place;
  if (scheme === "bearer" && schemes.includes("bearer")) {
    const account = parseToken(secret)?.account;
    if (account) return account;
  }
  if (scheme !== "claim" || !schemes.includes("claim") || !CLAIM.test(secret)) throw unauthenticated();
  const nameplate = call.path("nameplate", NAMEPLATE);
  if (call.place.parts["phase"]) {
    call.mail();
    call.query("wait", SECONDS, 0);
  }
  const isClaiming = name.endsWith("/claim");
  if (isClaiming) {
    const wait = await addressOf(env, call.request).take("claims");
    if (wait) throw overRate(wait, "claims of this address");
  }
  const account = await nameplates(env).find(nameplate);
  if (account === null && !name.startsWith("DELETE")) throw gone(nameplate, isClaiming ? {} : COUNTED);
  return account;
}

/** Count an answer that refuses a stranger; refuse the address after too many. */
async function counted(response: Response, request: Request, env: Env): Promise<Response> {
  if (!response.headers.has(COUNTS)) return response;
  const wait = await addressOf(env, request).take("refused");
  if (wait) return overRate(wait, "refused requests of this address").reply();
  const headers = new Headers(response.headers);
  headers.delete(COUNTS);
  return new Response(response.body, { status: response.status, headers });
}

function failed(error: unknown, requestId: string): Response {
  if (error instanceof Refusal) return error.reply();
  const line = { level: "error", event: "failed", request_id: requestId, error: String(error) };
  console.error(JSON.stringify(line));
  const { retryable, overloaded } = error as { retryable?: boolean; overloaded?: boolean };
  if (retryable || overloaded) {
    return new Refusal("unavailable", "the relay does not reach the account", retryAfter(5)).reply();
  }
  return new Refusal("internal", "the relay has a bug; its log has details under this request id").reply();
}

// -- for operators and monitors

async function open(call: Call, env: Env): Promise<Response> {
  switch (call.place.name) {
    case "GET /readyz":
      await env.DIRECTORY.get(env.DIRECTORY.idFromName("probe")).probe();
      return json({ status: "ready" });
    case "GET /openapi.json":
      return json(document);
    case "GET /openapi.yaml":
      return sized(new TextEncoder().encode(yaml), 200, { "content-type": "application/yaml" });
    default:
      return json({ status: "ok" });
  }
}

/** Make a home token, with a new account or for one that is named; revoke a token of any account. */
async function administer(call: Call, env: Env): Promise<Response> {
  const secret = env.ADMIN_SECRET ?? "";
  if (secret.length < MIN_ADMIN_SECRET) throw new Refusal("not-found", "ADMIN_SECRET is not set, or too short");
  const [scheme, given] = call.credentials();
  if (scheme !== "bearer" || !isSame(await hashSecret(given), await hashSecret(secret))) throw unauthenticated();
  const now = Date.now();
  if (call.place.name.startsWith("DELETE")) {
    const id = call.path("token_id", TOKEN_ID);
    if (await stubOf(env, id.slice(0, ACCOUNT_LETTERS)).revokeToken(id)) return noContent();
    throw new Refusal("no-token", "no account has such a token");
  }
  const { account, label } = await call.json(readSettings(env), ["account", "label"]);
  const name = account === undefined ? randomLetters() : String(account);
  if (!ACCOUNT.test(name)) throw new Refusal("bad-request", "an account is 8 digits and lower-case letters");
  const asked = checkRequest({ label: label ?? "home", scopes: ["home"] });
  const made = await stubOf(env, name).makeToken(name, asked, account === undefined);
  if (made) return json({ account: name, ...made, created_at: now }, 201);
  throw new Refusal("bad-request", account === undefined ? "try again" : "there is no such account");
}

/** Write the log line of a request, and its data point where there is a data set. */
function note(env: Env, call: Call | null, status: number, requestId: string, ms: number): void {
  const [method = "", route = "none"] = call?.place.name.split(" ") ?? [];
  const token = call && parseToken(call.credentials()[1])?.id;
  const stream = call?.place.parts["stream"]?.slice(0, 8);
  const level = status >= 500 ? "error" : "info";
  const line = { time: Date.now(), level, event: "request", request_id: requestId, method, route, status, ms };
  console.log(JSON.stringify({ ...line, token, stream: stream && /^[0-9a-z]+$/.test(stream) ? stream : undefined }));
  env.METRICS?.writeDataPoint({ indexes: [route], blobs: [method, String(status)], doubles: [ms] });
}
