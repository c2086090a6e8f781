// One request, parsed strictly: any deviation from docs/spec/relay-http.md is `bad-request`.

import { Refusal, hex, retryAfter } from "./reply.ts";
import { findPlace, splitUrl, type Place } from "./routes.ts";
import type { Settings } from "./settings.ts";

export const INLINE_BYTES = 128 * 1024;
const MAX_QUERY = 4096;
const MAX_JSON = 65_536;
const DRAIN_MS = 500;

/** Strict form of a value in a path, a query or a header. */
interface Form<T> {
  pattern: RegExp;
  words: string;
  read: (text: string) => T;
}

function form<T>(pattern: RegExp, words: string, read: (text: string) => T): Form<T> {
  return { pattern, words, read };
}

/** Return the form of a whole number in a range. */
export function number(low = 0, high = Number.MAX_SAFE_INTEGER): Form<number> {
  return form(/^(0|[1-9][0-9]{0,15})$/, `a number from ${low} to ${high}`, (text) => {
    const found = Number(text);
    return found < low || found > high ? NaN : found;
  });
}

export const ID = form(/^[0-9a-f]{32}$/, "32 lower-case hexadecimal digits", String);
export const SECONDS = form(/^(([0-4]?[0-9]|5[0-4])(\.[0-9]{1,6})?|55(\.0{1,6})?)$/, "a number of seconds from 0 to 55", Number);
export const RESEND = form(/^[01]$/, "0 or 1", (text) => text === "1");
export const TOKEN_ID = form(/^[0-9a-z]{16}$/, "16 digits and lower-case letters", String);
export const NAMEPLATE = number(1, 999_999);
export const SIDE = form(/^[ab]$/, "a or b", String);
export const PHASE = form(/^[a-z0-9-]{1,32}$/, "1 to 32 of a-z, 0-9 and -", String);
const DIGEST = form(/^sha-256=:[A-Za-z0-9+/]{43}=:$/, "sha-256=:<base64>:", (text) => text.slice(9, -1));

function parse<T>(form: Form<T>, name: string, text: string): T {
  const value = form.pattern.test(text) ? form.read(text) : null;
  if (value === null || Number.isNaN(value)) throw new Refusal("bad-request", `${name} is not ${form.words}`);
  return value;
}

/** Where a message of a mailbox is. */
export type Mail = { nameplate: number; side: string; phase: string };

export type Body = { bytes: Uint8Array; digest: ArrayBuffer };

export class Call {
  readonly place: Place;
  private readonly queryText: string;
  private reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** Called when a body is complete, which may be long after its sender was checked. */
  onBody: () => void = () => undefined;

  constructor(readonly request: Request) {
    const [path, query] = splitUrl(request.url);
    this.queryText = query;
    this.place = findPlace(request.method, path);
  }

  header(name: string): string {
    return this.request.headers.get(name) ?? "";
  }

  path<T>(name: string, form: Form<T>): T {
    const text = this.place.parts[name] ?? "";
    return parse(form, `the ${name} in the path`, text.includes("%") ? decoded(text) : text);
  }

  query<T>(name: string, form: Form<T>, byDefault: T): T {
    if (this.queryText.length > MAX_QUERY) {
      throw new Refusal("bad-request", `the query is longer than ${MAX_QUERY} bytes`);
    }
    const [value, ...more] = new URLSearchParams(this.queryText).getAll(name);
    if (more.length) throw new Refusal("bad-request", `${name} is given ${more.length + 1} times`);
    return value === undefined ? byDefault : parse(form, name, value);
  }

  /** Check where a message of a mailbox is. */
  mail(): Mail {
    const nameplate = this.path("nameplate", NAMEPLATE);
    return { nameplate, side: this.path("side", SIDE), phase: this.path("phase", PHASE) };
  }

  /** Refuse a client of another major version. */
  checkVersion(): void {
    const version = this.header("crystal-relay-version");
    if (version && !/^1(\.[0-9]{1,3})?$/.test(version)) {
      throw new Refusal("unsupported-version", "this relay speaks version 1", { upgrade: "crystal-relay/1" });
    }
  }

  /** Return the credentials, split into scheme (lower case) and secret. */
  credentials(): [scheme: string, secret: string] {
    const [, scheme = "", secret = ""] = /^([^ ]*) *(.*?) *$/.exec(this.header("authorization")) ?? [];
    return [scheme.toLowerCase(), secret];
  }

  /** Check what the headers say of the body. Return its announced length, null if it is chunked. */
  length(limit: number): number | null {
    if (!["", "identity"].includes(this.header("content-encoding").toLowerCase())) {
      throw new Refusal("unsupported-media-type", "Content-Encoding may be identity and nothing else");
    }
    const text = this.header("content-length");
    if (text && !/^[0-9]{1,20}$/.test(text)) throw new Refusal("bad-request", "Content-Length is not a number");
    if (text && Number(text) > limit) throw tooLarge(limit);
    return text ? Number(text) : null;
  }

  /** Read a body of at most `limit` bytes, and its SHA-256. */
  async body(settings: Settings, limit: number): Promise<Body> {
    const length = this.length(limit);
    const text = this.header("content-digest");
    const announced = text ? parse(DIGEST, "Content-Digest", text) : null;
    const bytes = await this.read(settings, length ?? limit, limit);
    this.onBody();
    if (length !== null && bytes.length !== length) throw new Refusal("bad-request", "the body ended too early");
    const digest = await crypto.subtle.digest("SHA-256", bytes);
    if (announced !== null && hex(unbase64(announced)) !== hex(digest)) {
      throw new Refusal("digest-mismatch", "the body is not what Content-Digest says; send it again");
    }
    return { bytes, digest };
  }

  /** Read the body into one buffer of the announced size, because large bodies are most of the memory. */
  private async read(settings: Settings, room: number, limit: number): Promise<Uint8Array> {
    const whole = new Uint8Array(room);
    let size = 0;
    const endsAt = Date.now() + settings.body_total * 1000;
    this.reader = this.request.body?.getReader();
    for (;;) {
      const left = Math.min(settings.body_idle * 1000, endsAt - Date.now());
      const next = await within<ReadableStreamReadResult<Uint8Array>>(left, this.reader?.read() ?? { done: true });
      if (next === null) throw new Refusal("body-timeout", "the body came too slowly", { connection: "close" });
      if (next.done) return whole.subarray(0, size);
      if (size + next.value.length > room) throw tooLarge(limit);
      whole.set(next.value, size);
      size += next.value.length;
    }
  }

  async drain(): Promise<void> {
    await drain(this.request, this.reader);
  }

  /** Read a JSON object with no other keys than these; a missing body is an empty object. */
  async json(settings: Settings, keys: string[]): Promise<Record<string, unknown>> {
    const mediaType = (this.header("content-type").split(";")[0] ?? "").trim().toLowerCase();
    const { bytes } = await this.body(settings, MAX_JSON);
    if (!bytes.length) return {};
    if (!["", "application/json"].includes(mediaType)) {
      throw new Refusal("unsupported-media-type", "the body has to be application/json");
    }
    let value: unknown;
    try {
      value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
    } catch {
      throw new Refusal("bad-request", "the JSON body cannot be used: it is no JSON");
    }
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new Refusal("bad-request", "the JSON body cannot be used: it is no object");
    }
    if (!Object.keys(value).every((key) => keys.includes(key))) {
      throw new Refusal("bad-request", "the JSON body cannot be used: it has an unknown key");
    }
    return { ...value };
  }
}

function tooLarge(limit: number): Refusal {
  return new Refusal("body-too-large", `a body has at most ${limit} bytes here`);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function unbase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Return what a promise gives, null if it takes longer. */
export async function within<T>(milliseconds: number, promise: Promise<T> | T): Promise<T | null> {
  let timer: number | null = null;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), Math.max(0, milliseconds));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Read what is left of a refused body, for a moment: an answer is lost on a connection that closes on unread bytes. */
export async function drain(request: Request, begun?: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  const reader = begun ?? (request.bodyUsed ? undefined : request.body?.getReader());
  const drained = async (): Promise<void> => {
    while (reader && !(await reader.read()).done);
  };
  await within(DRAIN_MS, drained().catch(() => undefined));
}

export function overRate(wait: number, whose: string): Refusal {
  return new Refusal("rate-limited", `too many ${whose}`, retryAfter(wait));
}
