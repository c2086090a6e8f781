"use strict";
// Keys, search as you type, copying. Without it every page works with links and forms alone.
const $ = (what) => document.querySelector(what);
const field = $("#q");
const keys = $("#keys");
const STOPPED = "The server has stopped. Start it again: crystal web";

// ---- search as you type: the part of the page that changes comes as a parsed document, never as text set as HTML.
let request = null;
let timer = 0;

function search() {
  const values = new URLSearchParams(new FormData(field.form));
  const address = `/search?${values}`;
  request?.abort();
  request = new XMLHttpRequest();
  request.open("GET", `${address}&part=1`);
  request.responseType = "document";
  request.onload = ({ target }) => {
    if (!target.response?.body) return;
    $("#part").replaceChildren(...target.response.body.childNodes);
    history.replaceState(null, "", address);
    document.title = `${values.get("q") || "Search"} · crystal`;
  };
  request.onerror = () => { $("#part").textContent = STOPPED; };
  request.send();
}

field.addEventListener("input", () => {
  if (!$("#part")) return;
  clearTimeout(timer);
  timer = setTimeout(search, 120);
});

// ---- moving through what a page lists
const items = () => [...document.querySelectorAll("[data-item]")].filter((one) => one.checkVisibility());

function move(step) {
  const all = items();
  if (!all.length) return;
  const at = all.findIndex((one) => one.classList.contains("at"));
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 && step < 0 ? 0 : at + step))];
  all[at]?.classList.remove("at");
  next.classList.add("at");
  (next.querySelector("a.card") ?? next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function unfold() {
  const fold = $("[data-item].at details");
  if (fold) fold.open = !fold.open;
}

// ---- a review: one key for each verdict on the memory that is chosen, the first to begin with
const verdict = (key) => $(`[data-item].at [data-verdict="${CSS.escape(key)}"]`);

function editChosen() {
  const fold = $("[data-review] .at details");
  if (!fold) return false;
  fold.open = true;
  const text = fold.querySelector("textarea");
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);
  return true;
}

function foldAll() {
  const folds = [...document.querySelectorAll(".turns details")];
  const open = folds.some((one) => !one.open);
  for (const one of folds) one.open = open;
}

const showKeys = () => keys.open || keys.showModal();
// Who speaks to the computer switches letters off: a spoken word would press them.
const singleKeys = $("#single-keys");
singleKeys.checked = localStorage.getItem("single-keys") !== "off";
singleKeys.addEventListener("change", () => localStorage.setItem("single-keys", singleKeys.checked ? "on" : "off"));
const actions = {
  "/": () => { field.focus(); field.select(); },
  j: () => move(1),
  k: () => move(-1),
  x: foldAll,
  "?": showKeys,
};
let isGoing = false;

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && isTyping) event.target.blur();
  if (event.key === "ArrowDown" && event.target === field) { event.preventDefault(); field.blur(); move(1); }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.key === "Enter" && event.target.matches("[data-item].at")) unfold();
  if (!singleKeys.checked) return;
  const view = isGoing && document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
  isGoing = event.key === "g" && !isGoing;
  if (view) { view.click(); return; }
  const button = verdict(event.key);
  if (button) { event.preventDefault(); button.click(); return; }
  if (event.key === "e" && editChosen()) { event.preventDefault(); return; }
  if (Object.hasOwn(actions, event.key)) { event.preventDefault(); actions[event.key](); }
});

if ($("[data-review]")) { move(1); scrollTo(0, 0); }
// On a narrow window, show the view's place in the menu. scrollIntoView would make Tab begin there.
const place = $("nav [aria-current]");
const menu = place?.closest("nav");
if (menu) menu.scrollLeft += place.getBoundingClientRect().left - menu.getBoundingClientRect().left - (menu.clientWidth - place.offsetWidth) / 2;
$("#keys-button").addEventListener("click", showKeys);

$("[data-fold]")?.addEventListener("click", foldAll);

for (const one of document.querySelectorAll("[data-copy]")) {
  one.addEventListener("click", async (event) => {
    event.preventDefault();
    const words = one.textContent;
    try {
      const answer = await fetch(one.href);
      if (!answer.ok) { location.assign(one.href); return; }
      await navigator.clipboard.writeText(await answer.text());
      one.textContent = "Copied";
    } catch (error) {
      one.textContent = error instanceof TypeError ? STOPPED : "The browser does not allow to copy";
    }
    setTimeout(() => { one.textContent = words; }, 4000);
  });
}

// A link to a turn inside of what is folded unfolds it.
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  for (let one = target?.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", reveal);
if (location.hash) reveal();

// Going back to what a form sent, or loading it again, leads to the form: the browser would ask whether to send it again.
const start = $("[data-start]");
if (start) history.replaceState(null, "", start.dataset.start);

document.addEventListener("submit", ({ target }) => {
  const button = target.matches("[data-busy]") && target.querySelector(".primary");
  if (button) setTimeout(() => { button.disabled = true; button.textContent = target.dataset.busy; });
});
addEventListener("pageshow", (event) => { if (event.persisted && $("[data-busy]")) location.reload(); });
