"use strict";
// The page shows only the blocks that it needs: a block is decoded when a turn of it comes near the screen, and a group
// of turns that has left the screen keeps its height, not its elements. Text enters the page as text alone.
(() => {
  const GROUP = 40, CLIP = 6000, MAX_HITS = 300, MAX_CACHED = 24, FOLDED = new Set(["tool_call", "tool_result", "thinking"]);
  const $ = (id) => document.getElementById(id);
  const seal = JSON.parse($("seal").textContent);
  const label = new TextEncoder().encode("crystal-page-1");
  const cache = new Map();
  let key = null, index = null, current = null, wanted = null, search = 0;

  function make(name, text, className) {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const when = (ms) => ms === null ? "" : new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

  // ------------------------------------------------------------------------------------------------------- data

  function bytesOf(text) {
    const found = atob(text), bytes = new Uint8Array(found.length);
    for (let at = 0; at < found.length; at++) bytes[at] = found.charCodeAt(at);
    return bytes;
  }

  async function decode(number) {
    let bytes = bytesOf($("block-" + number).textContent);
    if (key) {
      const iv = new Uint8Array(12);
      new DataView(iv.buffer).setUint32(8, number);
      bytes = await crypto.subtle.decrypt({ name: "AES-GCM", iv, additionalData: label }, key, bytes);
    }
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function block(number) {
    let rows = cache.get(number);
    if (rows) cache.delete(number);
    else rows = decode(number);
    cache.set(number, rows);
    if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
    return rows;
  }

  function blockOf(turn) {
    let low = 0, high = index.blocks.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (index.blocks[middle] <= turn) low = middle; else high = middle;
    }
    return low + 1;
  }

  async function turnsBetween(first, end) {
    const rows = [];
    while (first < end) {
      const number = blockOf(first), start = index.blocks[number - 1], found = await block(number);
      const some = found.slice(first - start, end - start);
      if (!some.length) throw new Error("a block is too short");
      rows.push(...some);
      first += some.length;
    }
    return rows;
  }

  async function deriveKey(passphrase) {
    const text = new TextEncoder().encode(passphrase.normalize("NFC"));
    const secret = await crypto.subtle.importKey("raw", text, "PBKDF2", false, ["deriveKey"]);
    const how = { name: "PBKDF2", hash: "SHA-512", salt: bytesOf(seal.salt), iterations: seal.iterations };
    return crypto.subtle.deriveKey(how, secret, { name: "AES-GCM", length: 256 }, false, ["decrypt"]);
  }

  // ------------------------------------------------------------------------------------------------- conversation

  function textOf(text) {
    const shown = make("pre", text.slice(0, CLIP));
    shown.dir = "auto";
    if (text.length <= CLIP) return [shown];
    const more = make("button", `Show all ${count(text.length, "character")}`);
    more.type = "button";
    more.addEventListener("click", () => { shown.textContent = text; more.remove(); });
    return [shown, more];
  }

  function article([role, speaker, time, text, remarks], number) {
    const one = make("article", "", role === "user" ? "user" : "");
    one.id = "t" + number;
    const tail = [when(time), remarks].filter(Boolean).map((part) => " · " + part).join("");
    if (!FOLDED.has(role)) {
      const name = make("h2", speaker);
      name.append(make("small", tail));
      one.append(name, ...textOf(text));
      if (number === wanted) point(one);
      return one;
    }
    const fold = make("details"), name = make("summary", speaker);
    name.append(make("small", tail + " · " + text.slice(0, 200).replace(/\s+/g, " ").slice(0, 80)));
    fold.append(name);
    fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(...textOf(text)); });
    one.append(fold);
    if (number === wanted) point(one);
    return one;
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.near = isIntersecting;
      if (isIntersecting) fill(target);
      else if (target.childElementCount) {
        target.style.minHeight = target.offsetHeight + "px";
        target.replaceChildren();
      }
    }
  }, { root: $("talk"), rootMargin: "1200px 0px" });

  async function fill(group) {
    if (group.childElementCount) return;
    const rows = await turnsBetween(group.first, group.end);
    if (!group.isConnected || !group.near || group.childElementCount) return;
    group.replaceChildren(...rows.map((row, at) => article(row, group.first + at)));
    group.style.minHeight = "";
  }

  function open(session, turn) {
    document.body.classList.add("reading");
    if (current !== session) {
      current = session;
      watcher.disconnect();
      for (const link of document.querySelectorAll("[aria-current]")) link.removeAttribute("aria-current");
      session.link.setAttribute("aria-current", "true");
      document.title = session.title || "Conversations";
      $("title").textContent = session.title || "(without words)";
      const span = [...new Set([when(session.started), when(session.last)])].filter(Boolean).join(" to ");
      const facts = [session.agent, session.project, session.branch, session.device, span, count(session.turns, "turn"), session.id];
      $("facts").textContent = facts.filter(Boolean).join(" · ");
      const groups = [];
      for (let first = session.first; first < session.first + session.turns; first += GROUP) {
        const group = make("section");
        group.first = first;
        group.end = Math.min(first + GROUP, session.first + session.turns);
        group.style.minHeight = (group.end - first) * 60 + "px";
        groups.push(group);
      }
      $("turns").replaceChildren(...groups);
      $("talk").scrollTop = 0;
      groups.forEach((group) => watcher.observe(group));
    }
    wanted = null;
    if (turn !== undefined) jump(session, turn);
  }

  async function jump(session, turn) {
    const group = $("turns").children[Math.floor((turn - session.first) / GROUP)];
    document.querySelector("article.found")?.classList.remove("found");
    wanted = turn;
    group.scrollIntoView();
    group.near = true;
    await fill(group);
    const one = $("t" + turn);
    if (one) point(one);
    // What stands above it is laid out only now, and moves it.
    for (const delay of [0, 150, 500]) setTimeout(() => { if (wanted === turn) show($("t" + turn)); }, delay);
  }

  const show = (one) => one?.scrollIntoView({ block: one.offsetHeight < $("talk").clientHeight ? "center" : "start" });

  function point(one) {
    one.classList.add("found");
    const fold = one.querySelector("details");
    if (fold) fold.open = true;
  }

  // -------------------------------------------------------------------------------------------------------- lists

  function row(href, title, facts) {
    const item = make("li"), link = make("a"), name = title instanceof Node ? title : make("span", title);
    link.href = href;
    link.append(name, make("small", facts.filter(Boolean).join(" · ")));
    item.append(link);
    return item;
  }

  function listSessions() {
    const items = index.sessions.map((session, at) => {
      const item = row("#s" + at, session.title || "(without words)", [when(session.last), session.project, session.agent, count(session.turns, "turn")]);
      session.link = item.firstChild;
      return item;
    });
    $("sessions").replaceChildren(...items.reverse());
  }

  function sessionAt(turn) {
    let low = 0, high = index.sessions.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (index.sessions[middle].first <= turn) low = middle; else high = middle;
    }
    return low;
  }

  function snippet(text, lower, words) {
    const first = Math.max(0, lower.indexOf(words[0])), start = Math.max(0, first - 60);
    const shown = make("span", start ? "…" : ""), part = text.slice(start, start + 260), low = part.toLowerCase();
    let at = 0;
    while (at < part.length && low.length === part.length) {
      const next = words.map((word) => [low.indexOf(word, at), word.length]).filter(([place]) => place >= 0).sort((a, b) => a[0] - b[0])[0];
      if (!next) break;
      shown.append(part.slice(at, next[0]), make("mark", part.slice(next[0], next[0] + next[1])));
      at = next[0] + next[1];
    }
    shown.append(part.slice(at));
    return shown;
  }

  async function find() {
    const mine = ++search, words = $("query").value.toLowerCase().split(/\s+/).filter(Boolean);
    $("hits").hidden = !words.length;
    $("sessions").hidden = Boolean(words.length);
    $("hits").replaceChildren();
    if (!words.length) return tell();
    // Decoded beside the cache: a search through everything must not keep everything.
    const rowsOf = (number) => cache.get(number) || decode(number);
    let hits = 0, coming = rowsOf(index.blocks.length);
    for (let number = index.blocks.length; number > 0 && hits < MAX_HITS; number--) {
      const rows = await coming, items = [];
      if (mine !== search) return;
      if (number > 1) coming = rowsOf(number - 1);
      for (let at = rows.length - 1; at >= 0 && hits < MAX_HITS; at--) {
        const lower = rows[at][3].toLowerCase();
        if (!words.every((word) => lower.includes(word))) continue;
        hits++;
        const turn = index.blocks[number - 1] + at, session = index.sessions[sessionAt(turn)];
        items.push(row("#t" + turn, snippet(rows[at][3], lower, words), [rows[at][1], when(rows[at][2]), session.title.slice(0, 60)]));
      }
      $("hits").append(...items);
      $("status").textContent = `${count(hits, "message")} found, still searching …`;
    }
    $("status").textContent = hits >= MAX_HITS ? `the newest ${count(hits, "message")}; add a word for others` : `${count(hits, "message")} found`;
  }

  const tell = () => { $("status").textContent = `${count(index.sessions.length, "session")}, ${count(index.turns, "turn")}, exported ${when(index.written)}`; };

  // --------------------------------------------------------------------------------------------------------- start

  function follow() {
    const [, kind, number] = /^#([st])(\d+)$/.exec(location.hash) || [];
    const session = kind && index.sessions[kind === "s" ? Number(number) : sessionAt(Number(number))];
    if (session) open(session, kind === "t" && Number(number) < index.turns ? Number(number) : undefined);
    else document.body.classList.remove("reading");
  }

  function moveFocus(step) {
    const links = [...document.querySelectorAll("#side ol:not([hidden]) a")];
    const at = links.indexOf(document.activeElement);
    if (at + step < 0) $("query").focus();
    else links[Math.min(at + step, links.length - 1)]?.focus();
  }

  let typing = 0;
  $("query").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(find, 250); });
  $("back").addEventListener("click", () => { location.hash = ""; });
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("talk").focus(); });
  // A click on the same message again shows it again.
  $("side").addEventListener("click", (event) => { const link = event.target.closest("a"); if (link && link.hash === location.hash) follow(); });
  document.addEventListener("keydown", (event) => {
    const inside = event.target.closest && event.target.closest("#side");
    if (event.key === "/" && event.target.tagName !== "INPUT") { event.preventDefault(); location.hash === "" || document.body.classList.remove("reading"); $("query").focus(); }
    else if (event.key === "Escape" && index) { $("query").value = ""; find(); }
    else if (inside && (event.key === "ArrowDown" || event.key === "ArrowUp")) { event.preventDefault(); moveFocus(event.key === "ArrowDown" ? 1 : -1); }
  });

  async function start() {
    index = await decode(0);
    $("lock").hidden = true;
    $("app").hidden = false;
    listSessions();
    tell();
    window.addEventListener("hashchange", follow);
    follow();
  }

  async function unlock(event) {
    event.preventDefault();
    const note = $("lock-note");
    if (!globalThis.crypto?.subtle) { note.textContent = "This browser decrypts only pages that are opened from the disk, or by https."; return; }
    note.textContent = "Opening …";
    try {
      key = await deriveKey($("passphrase").value);
      await decode(0);
    } catch {
      key = null;
      note.textContent = "Wrong passphrase, or the file is damaged.";
      $("passphrase").select();
      return;
    }
    $("passphrase").value = "";
    await start();
  }

  window.addEventListener("unhandledrejection", () => { $("status").textContent = "a part of this file is damaged"; });
  $("lock").addEventListener("submit", unlock);
  if (seal.salt) { $("lock").hidden = false; $("passphrase").focus(); } else start();
})();
