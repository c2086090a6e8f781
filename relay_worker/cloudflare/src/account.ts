// One account: the only writer of its streams, objects, tokens and mailboxes. It answers what the front passes on.

import { DurableObject } from "cloudflare:workers";

import * as blobs from "./blobs.ts";
import { Call, ID, INLINE_BYTES, NAMEPLATE, RESEND, SECONDS, TOKEN_ID, type Body } from "./call.ts";
import { number, overRate, within } from "./call.ts";
import { nameplates } from "./directory.ts";
import * as mailboxes from "./mailboxes.ts";
import * as objects from "./objects.ts";
import { COUNTED, NOTHING, Refusal, bytes, hex, json, noContent, retryAfter, stored } from "./reply.ts";
import { unauthenticated } from "./reply.ts";
import { Buckets, readSettings, type Env } from "./settings.ts";
import { Store, type NewBody } from "./store.ts";
import * as tokens from "./tokens.ts";

const MAX_WAITING = 1000;
const MAX_WAITING_EACH = 50;
const USED_MS = 60_000;
const PAUSE_MS = 1000;
const RETRY_MS = 60_000;
const LATE_MS = 60_000;

type Handler = (call: Call, who: Who) => Promise<Response> | Response;

/** Who asks: a token, or the claim of side `b`. */
type Who = { key: string; scopes: string[]; claim: ArrayBuffer | null };

function mailbox(nameplate: number): string {
  return `mailbox ${nameplate}`;
}

export class Account extends DurableObject<Env> {
  private readonly settings = readSettings(this.env);
  private readonly store = new Store(this.ctx.storage, this.env.BODIES, this.settings);
  private readonly byToken = new Buckets(this.settings.rate, this.settings.rate * 5);
  private uploads = 0;
  private readonly uploadsAwaited: (() => void)[] = [];
  /** When the alarm is set to; undefined until the storage was asked. */
  private alarmAt: number | null | undefined;

  /** Answer a request. */
  override async fetch(request: Request): Promise<Response> {
    const call = new Call(request);
    try {
      const who = await this.authenticate(call);
      call.onBody = () => this.refuseRevoked(who);
      this.expire();
      const handler = this.handlers[call.place.name];
      if (!handler) throw new Refusal("not-found", "there is no such route");
      return await handler(call, who);
    } catch (error) {
      if (error instanceof Refusal) return error.reply();
      throw error;
    } finally {
      await call.drain();
    }
  }

  // -- for the operator, called by the front after it has checked the operator's secret

  /** Make a token; the first one creates the account. Return null if the account is not, or is, already there. */
  async makeToken(account: string, asked: tokens.TokenRequest, isNew: boolean): Promise<object | null> {
    if ((this.store.name() === null) !== isNew) return null;
    if (isNew) this.store.transaction(() => this.store.create(account));
    return tokens.addToken(this.store, account, asked, Date.now());
  }

  /** Revoke a token. Return false if there is none. */
  revokeToken(id: string): boolean {
    if (this.store.name() === null || !tokens.findToken(this.store, id)) return false;
    tokens.revokeToken(this.store, id, Date.now());
    return true;
  }

  // -- who asks

  private async authenticate(call: Call): Promise<Who> {
    const [scheme, secret] = call.credentials();
    const hash = await tokens.hashSecret(scheme === "claim" ? secret : (tokens.parseToken(secret)?.secret ?? ""));
    if (this.store.name() === null) throw unauthenticated();
    if (scheme === "claim") return { key: "claim", scopes: [], claim: hash };
    const token = tokens.findToken(this.store, tokens.parseToken(secret)?.id ?? "");
    const isKnown = tokens.isSame(hash, token?.secret_hash ?? null);
    if (!token || !isKnown || token.revoked_at !== null) throw unauthenticated();
    const now = Date.now();
    if (now - (token.last_used_at ?? 0) >= USED_MS) {
      this.store.all("UPDATE tokens SET last_used_at = ? WHERE id = ?", now, token.id);
    }
    const wait = this.byToken.take(token.id);
    if (wait) throw overRate(wait, "requests of this token");
    return { key: token.id, scopes: token.scopes.split(" "), claim: null };
  }

  /** Refuse a request whose token was revoked since it began. */
  private refuseRevoked(who: Who): void {
    if (!who.claim && tokens.findToken(this.store, who.key)?.revoked_at !== null) throw unauthenticated();
  }

  private need(who: Who, ...scopes: string[]): void {
    if (!["home", ...scopes].some((scope) => who.scopes.includes(scope))) {
      throw new Refusal("forbidden", `the token lacks the scope ${scopes.join(" or ") || "home"}`);
    }
  }

  private needStream(who: Who, stream: string, ...verbs: string[]): void {
    this.need(who, ...verbs.map((verb) => `${verb}:${stream.slice(0, 16)}`));
  }

  // -- the routes

  private readonly handlers: Record<string, Handler> = {
    "PUT /v1/streams/{stream}/blobs/{seq}": async (call, who) => {
      const [stream, seq] = [call.path("stream", ID), call.path("seq", number(1))];
      const resend = call.query("resend", RESEND, false);
      this.needStream(who, stream, "write");
      return this.receive(call, async (body) => {
        const tag = blobs.checkEnvelope(body.bytes, stream, seq);
        const put = blobs.putBlob.bind(null, this.store, stream, seq, tag);
        const isNew = await this.keep(body, resend, put);
        if (isNew) this.wake(stream);
        return stored(isNew, { seq, tag });
      });
    },
    "GET /v1/streams/{stream}/blobs/{seq}": (call, who) => {
      const [stream, seq] = [call.path("stream", ID), call.path("seq", number(1))];
      this.needStream(who, stream, "read");
      return bytes(blobs.findBlob(this.store, stream, seq));
    },
    "GET /v1/streams/{stream}/blobs": (call, who) => {
      const [stream, after] = [call.path("stream", ID), call.query("after", number(), 0)];
      const limit = call.query("limit", number(1, 1000), 100);
      this.needStream(who, stream, "write", "read", "ack");
      return json(blobs.listBlobs(this.store, stream, after, limit));
    },
    "GET /v1/streams/{stream}": (call, who) => {
      const stream = call.path("stream", ID);
      this.needStream(who, stream, "write", "read", "ack");
      return json(blobs.stateOf(this.store, stream));
    },
    "POST /v1/streams/{stream}/ack": async (call, who) => {
      const stream = call.path("stream", ID);
      this.needStream(who, stream, "ack");
      const { upto } = await call.json(this.settings, ["upto"]);
      if (!Number.isSafeInteger(upto) || Number(upto) < 0) {
        throw new Refusal("bad-request", "upto is not a number from 0");
      }
      const now = Date.now();
      this.store.transaction(() => blobs.acknowledge(this.store, stream, Number(upto), now));
      await this.schedule();
      return noContent();
    },
    "GET /v1/streams": (call, who) => {
      const changedAfter = call.query("changed_after", number(), 0);
      call.query("wait", SECONDS, 0);
      const prefixes = tokens.prefixesOf(who.scopes);
      if (!prefixes.length) throw new Refusal("forbidden", "the token names no streams");
      const found = blobs.listStreams(this.store, prefixes, changedAfter);
      return this.answerOrWait(call, who, prefixes, found.streams.length ? json(found) : null, found);
    },

    "PUT /v1/objects/{id}": async (call, who) => {
      const [id, resend] = [call.path("id", ID), call.query("resend", RESEND, false)];
      this.need(who, "objects:write");
      return this.receive(call, async (body) => {
        if (!body.bytes.length) throw new Refusal("bad-request", "an object has at least one byte");
        const isNew = await this.keep(body, resend, objects.putObject.bind(null, this.store, id));
        return stored(isNew, { id, size: body.bytes.length });
      });
    },
    "GET /v1/objects/{id}": (call, who) => {
      const id = call.path("id", ID);
      this.need(who, "objects:read");
      return bytes(objects.findObject(this.store, id));
    },
    "DELETE /v1/objects/{id}": async (call, who) => {
      const id = call.path("id", ID);
      this.need(who, "objects:write");
      const now = Date.now();
      this.store.transaction(() => objects.deleteObject(this.store, id, now));
      await this.schedule();
      return noContent();
    },
    "GET /v1/objects": (call, who) => {
      const [after, limit] = [call.query("after", ID, ""), call.query("limit", number(1, 1000), 1000)];
      this.need(who, "objects:read", "objects:write");
      return json(objects.listObjects(this.store, after, limit));
    },

    "POST /v1/tokens": async (call, who) => {
      this.need(who);
      const asked = tokens.checkRequest(await call.json(this.settings, ["label", "scopes"]));
      return json(await tokens.addToken(this.store, this.store.name() ?? "", asked, Date.now()), 201);
    },
    "GET /v1/tokens": (_, who) => {
      this.need(who);
      return json({ tokens: tokens.listTokens(this.store) });
    },
    "DELETE /v1/tokens/{token_id}": (call, who) => {
      const id = call.path("token_id", TOKEN_ID);
      this.need(who);
      tokens.revokeToken(this.store, id, Date.now());
      return noContent();
    },

    "POST /v1/pair": async (call, who) => {
      this.need(who, "pair");
      await call.json(this.settings, []);
      const now = Date.now();
      mailboxes.checkRoom(this.store, now);
      const expires_at = now + mailboxes.MAILBOX_MS;
      const nameplate = await nameplates(this.env).open(mailboxes.candidates(), this.store.name() ?? "", expires_at);
      if (nameplate === null) throw new Refusal("unavailable", "no nameplate is free", retryAfter(60));
      this.store.transaction(() => mailboxes.openMailbox(this.store, nameplate, now));
      await this.schedule();
      return json({ nameplate, expires_at }, 201);
    },
    "PUT /v1/pair/{nameplate}/claim": (call, who) => {
      const nameplate = call.path("nameplate", NAMEPLATE);
      const box = mailboxes.findMailbox(this.store, nameplate, Date.now());
      if (!box || !who.claim) throw mailboxes.gone(nameplate);
      const isNew = mailboxes.claimMailbox(this.store, box, who.claim);
      return json({ nameplate, expires_at: box.expires_at }, isNew ? 201 : 200);
    },
    "PUT /v1/pair/{nameplate}/{side}/{phase}": async (call, who) => {
      const mail = call.mail();
      const { nameplate, side } = mail;
      this.needMailbox(nameplate, who);
      if (side !== (who.claim ? "b" : "a")) throw new Refusal("forbidden", "only the other side may do this");
      const body = await call.body(this.settings, mailboxes.MAX_MAIL_BYTES);
      if (!body.bytes.length) throw new Refusal("bad-request", "a message has at least one byte");
      this.needMailbox(nameplate, who);
      const isNew = mailboxes.putMail(this.store, mail, body.bytes, hex(body.digest));
      this.wake(mailbox(nameplate));
      return stored(isNew);
    },
    "GET /v1/pair/{nameplate}/{side}/{phase}": (call, who) => {
      const mail = call.mail();
      call.query("wait", SECONDS, 0);
      this.needMailbox(mail.nameplate, who);
      const found = mailboxes.findMail(this.store, mail);
      return this.answerOrWait(call, who, [mailbox(mail.nameplate)], found && bytes(found), null);
    },
    "DELETE /v1/pair/{nameplate}": async (call, who) => {
      const nameplate = call.path("nameplate", NAMEPLATE);
      try {
        this.needMailbox(nameplate, who);
      } catch (error) {
        if (error instanceof Refusal && error.code === "no-mailbox") return noContent(error.headers);
        throw error;
      }
      this.store.transaction(() => mailboxes.closeMailbox(this.store, nameplate));
      this.wake(mailbox(nameplate));
      await nameplates(this.env).close(nameplate, this.store.name() ?? "");
      return noContent();
    },
  };

  /** Refuse who is neither side of an open mailbox. */
  private needMailbox(nameplate: number, who: Who): void {
    if (!who.claim) this.need(who, "pair");
    const box = mailboxes.findMailbox(this.store, nameplate, Date.now());
    if (!box) throw mailboxes.gone(nameplate, who.claim ? COUNTED : {});
    if (who.claim && !tokens.isSame(who.claim, box.claim_hash)) throw unauthenticated();
  }

  // -- bodies

  /** Receive a body; a large one holds one of few places until the work is done, so that memory suffices. */
  private async receive(call: Call, work: (body: Body) => Promise<Response>): Promise<Response> {
    const limit = this.settings.max_body;
    if ((call.length(limit) ?? limit) <= INLINE_BYTES) return work(await call.body(this.settings, limit));
    await this.takePlace();
    try {
      return await work(await call.body(this.settings, limit));
    } finally {
      this.uploads -= 1;
      this.uploadsAwaited.shift()?.();
    }
  }

  private async takePlace(): Promise<void> {
    const endsAt = Date.now() + this.settings.body_total * 1000;
    while (this.uploads >= this.settings.large_uploads) {
      const free = new Promise<true>((resolve) => this.uploadsAwaited.push(() => resolve(true)));
      if ((await within(endsAt - Date.now(), free)) === null) {
        throw new Refusal("unavailable", "too many simultaneous large bodies", retryAfter(5));
      }
    }
    this.uploads += 1;
  }

  /** Store a body: a large one lies in the bucket before the row that names it is written. */
  private async keep(body: Body, resend: boolean, put: (asked: NewBody, now: number) => boolean): Promise<boolean> {
    const isLarge = body.bytes.length > INLINE_BYTES;
    const upload = isLarge ? this.store.upload(body.bytes, body.digest, Date.now()) : null;
    const [file] = await Promise.all([upload, isLarge && this.schedule()]);
    const now = Date.now();
    let isNew = false;
    try {
      isNew = this.store.transaction(() => put({ bytes: body.bytes, digest: hex(body.digest), resend, file }, now));
      return isNew;
    } finally {
      if (!isNew) this.store.drop([file], now);
      await this.schedule();
    }
  }

  // -- waiting

  /**
   * Answer, or have the front wait on a WebSocket for a change of what `prefixes` name: meanwhile this object sleeps,
   * and costs nothing.
   */
  private answerOrWait(call: Call, who: Who, prefixes: string[], found: Response | null, nothing: unknown): Response {
    const waiting = (tag?: string): number => this.ctx.getWebSockets(tag).length;
    const hasPlace = waiting() < MAX_WAITING && waiting(who.key) < MAX_WAITING_EACH;
    if (found) return found;
    if (call.header("upgrade") !== "websocket" || !hasPlace) return nothing ? json(nothing) : noContent();
    const [front, mine] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket];
    this.ctx.acceptWebSocket(mine, [who.key]);
    mine.serializeAttachment(prefixes);
    return new Response(null, { status: 101, webSocket: front, headers: { [NOTHING]: JSON.stringify(nothing) } });
  }

  /** Wake those that wait for a stream or a mailbox. */
  private wake(changed: string): void {
    for (const socket of this.ctx.getWebSockets()) {
      const prefixes = socket.deserializeAttachment() as string[];
      if (prefixes.some((prefix) => changed.startsWith(prefix))) socket.close(1000);
    }
  }

  override webSocketClose(socket: WebSocket): void {
    socket.close(1000);
  }

  // -- age

  override async alarm(): Promise<void> {
    if (this.store.name() === null) return;
    this.alarmAt = null;
    this.expire();
    let pause = PAUSE_MS;
    try {
      await this.store.sweepFiles(Date.now());
    } catch (error) {
      console.error(JSON.stringify({ level: "error", event: "bucket failed", error: String(error) }));
      pause = RETRY_MS;
    }
    await this.schedule(pause);
  }

  /** Expire what is old. Requests do it too, so that nobody sees what an alarm has not reached yet. */
  private expire(): void {
    const now = Date.now();
    const due = this.store.nextDue();
    if (due === null || now < due) return;
    const expired = this.store.transaction(() => {
      mailboxes.expireMailboxes(this.store, now);
      return blobs.expire(this.store, now);
    });
    if (!expired.length) return;
    console.warn(JSON.stringify({ level: "warning", event: "blobs expired unread", count: expired.length }));
    for (const stream of new Set(expired)) this.wake(stream);
  }

  /**
   * Set the alarm to when something is due next, if it is not set to an earlier time. The pause also keeps an alarm
   * from setting itself to its own time, which would be no alarm.
   */
  private async schedule(pause = PAUSE_MS): Promise<void> {
    const due = this.store.nextDue();
    if (due === null) return;
    const now = Date.now();
    if (this.alarmAt === undefined) {
      const known = await this.ctx.storage.getAlarm();
      if (this.alarmAt === undefined) this.alarmAt = known; // another request may have set it meanwhile
    }
    if (this.alarmAt !== null && this.alarmAt > now - LATE_MS && this.alarmAt <= Math.max(due, now + pause)) return;
    this.alarmAt = Math.max(due, now + pause);
    await this.ctx.storage.setAlarm(this.alarmAt);
  }
}
