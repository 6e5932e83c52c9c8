// The frame: which page is shown, what is known of the controller, and when to look again.

import { ask, follow, login } from "./api.js";
import { brokerPage, brokersPage } from "./brokers.js";
import { card, el, link, show } from "./dom.js";
import { auditPage, consoleOf, controllersPage, historyPage } from "./log.js";
import { overview } from "./overview.js";
import { partitionPage, topicPage } from "./topic.js";
import { topicsPage } from "./topics.js";

const PAGES = [
  { name: "overview", title: "Overview", path: [], page: overview },
  { name: "brokers", title: "Brokers", page: brokersPage },
  { name: "partitions", title: "Partitions", page: topicsPage },
  { name: "history", title: "History", page: historyPage, still: true },
  { name: "audit", title: "Audit", page: auditPage },
  { name: "controllers", title: "Controllers", page: controllersPage, standby: true },
];
const UNLISTED = {
  broker: { title: "Broker", page: brokerPage, under: "brokers" },
  topic: { title: "Topic", page: topicPage, under: "partitions" },
  range: { title: "Topic", page: topicPage, under: "partitions" },
};
/** Between two looks: while something happens, and while nothing does. */
const LOOK_MS = 1000, QUIET_MS = 10000;

const main = document.getElementById("main");
let role = null, connected = false, looking = null, dirty = false, timer = 0, lookedAt = 0;

function wanted() {
  const { hash } = location;
  const parts = hash.replace(/^#\/?/, "").split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const name = parts.shift();
  if (name === "topic" && parts.length === 2) return { page: partitionPage, title: "Partition", under: "partitions", parts, hash };
  const found = PAGES.find((page) => page.name === name) ?? UNLISTED[name] ?? PAGES[0];
  return { ...found, under: found.under ?? found.name, parts, hash };
}

/** Ask, and show the page; one at a time. `fresh`: another page than before. */
async function look(fresh = false) {
  if (looking) {
    if (!fresh) return void (dirty = true);
    looking.abort();
  }
  const mine = (looking = new AbortController());
  const page = wanted();
  dirty = false;
  lookedAt = Date.now();
  clearTimeout(timer);
  try {
    const known = await ask("overview", {}, mine.signal);
    const standby = !known.cluster && !page.standby;
    const made = standby ? standbyPage(known) : await page.page({ known, parts: page.parts, signal: mine.signal, again: () => look(true) });
    if (looking !== mine) return;
    // Counted before the last change: it is counted again soon.
    if (known.cluster && !known.cluster.current) dirty = true;
    role = known.state;
    document.getElementById("version").textContent = `version ${known.version}`;
    // Who types a filter is not disturbed.
    if (fresh || standby || !(page.still || typing())) show(main, made);
    document.title = `${page.title} · Partition Controller`;
  } catch (error) {
    if (looking !== mine) return;
    if (error.status === 401) show(main, loginPage(error.message));
    else show(main, failure(error));
  }
  looking = null;
  main.dataset.shown = page.hash;
  frame(page);
  timer = setTimeout(look, dirty ? LOOK_MS : QUIET_MS);
}

function typing() {
  return ["INPUT", "SELECT"].includes(document.activeElement?.tagName) && main.contains(document.activeElement);
}

/** Something happened: look again, but not more often than once in LOOK_MS. */
function happened() {
  if (looking) return void (dirty = true);
  clearTimeout(timer);
  timer = setTimeout(look, Math.max(0, lookedAt + LOOK_MS - Date.now()));
}

function frame(page) {
  show(document.getElementById("nav"), PAGES.map(({ name, title, path }) =>
    link(path ?? [name], { "aria-current": page.under === name ? "page" : null, "data-key": `nav ${name}` }, title)));
  const words = role === null ? "" : role.active ? `active · controller ${role.controller_id} · epoch ${role.controller_epoch}` : `${role.role} · controller ${role.controller_id}`;
  show(document.getElementById("who"),
    el("span", { class: `chip ${role?.active ? "well" : "plain"}` }, words),
    el("span", { class: `live ${connected ? "on" : "off"}` }, connected ? "live" : "no line"));
}

function standbyPage({ state, controllers }) {
  const other = controllers.find((one) => one.active);
  const where = other && consoleOf(other);
  return [
    el("section", { class: "verdict standby" }, el("span", { class: "sign", "aria-hidden": "true" }, "–"),
      el("div", {},
        el("h1", {}, state.taking_over ? `Controller ${state.controller_id} is taking over` : `Controller ${state.controller_id} is ${state.role}`),
        el("p", {}, state.current_controller < 0 ? "No controller is known to be active." : `Controller ${state.current_controller} is active: it knows the cluster.`))),
    card("Where to look", {}, where ? el("p", {}, el("a", { href: where }, `Console of controller ${other.id}`)) : el("p", { class: "quiet" }, "The address of the active controller's console is not known here."),
      el("p", {}, link(["controllers"], {}, "All controllers"))),
  ];
}

function failure(error) {
  const text = error.status ? error.message : "The controller does not answer.";
  return card(error.status === 404 ? "There is no such thing" : "It cannot be shown", { class: "failure", role: "alert" }, el("p", {}, text));
}

function loginPage(why) {
  const field = el("input", { type: "password", id: "token", autocomplete: "off", "data-key": "token" });
  const enter = () => { login(field.value); look(true); };
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") enter(); });
  return card("Who are you?", { class: "login" },
    el("p", {}, `The controller says: ${why}`),
    el("p", {}, "With a client certificate in this browser, load the page again. Else give a bearer token; it is kept until the page is closed."),
    el("div", { class: "filters" }, el("label", { for: "token" }, "token"), field, el("button", { type: "button", "data-key": "enter", onclick: enter }, "enter")));
}

window.addEventListener("hashchange", async () => {
  await look(true);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) happened(); });

frame(wanted());
look(true);
follow(
  (name, data) => {
    if (name === "state") role = data;
    frame(wanted());
    happened();
  },
  (up) => {
    connected = up;
    frame(wanted());
  },
);
