// The frame: which page is shown, what is known of the controller, and when to look again.

import { ask, follow, login } from "./api.js";
import { brokerPage, brokersPage } from "./brokers.js";
import { afterChanges, permissions } from "./changes.js";
import { card, el, link, show } from "./dom.js";
import { auditPage, consoleOf, controllersPage, historyPage } from "./log.js";
import { overview } from "./overview.js";
import { replayPage } from "./replay.js";
import { partitionPage, topicPage } from "./topic.js";
import { topicsPage } from "./topics.js";
import { whatIfPage } from "./whatif.js";
import { workPage } from "./work.js";

const PAGES = [
  { name: "overview", title: "Overview", path: [], page: overview },
  { name: "brokers", title: "Brokers", page: brokersPage },
  { name: "partitions", title: "Partitions", page: topicsPage },
  { name: "what-if", title: "What if", page: whatIfPage, still: true },
  { name: "work", title: "Under way", page: workPage },
  { name: "history", title: "History", page: historyPage, still: true },
  { name: "replay", title: "Replay", page: replayPage, still: true },
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

const MAY = "a change is tried on a copy first, takes a reason, and is recorded with who made it.";
const BY_PCTL = "Changes are made with pctl, too, where each asks first and is recorded.";

const main = document.getElementById("main");
/** The page that is shown as it was asked for; null: none yet, or a message in its place. */
let settled = null;
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
    const [known, session] = await Promise.all([ask("overview", {}, mine.signal), permissions(mine.signal)]);
    const standby = !known.cluster && !page.standby;
    // What does not follow the cluster is asked for once, and who types a filter is not disturbed.
    const stays = !fresh && !standby && settled === page.hash && (page.still || typing());
    const made = stays ? null : standby ? standbyPage(known) : await page.page({ known, parts: page.parts, signal: mine.signal, again: () => look(true) });
    if (looking !== mine) return;
    // Counted before the last change: it is counted again soon.
    if (known.cluster && !known.cluster.current) dirty = true;
    role = known.state;
    show(document.getElementById("mode"), session.may_change ? `${session.caller}: ${MAY}` : `Read-only: ${session.why}. ${BY_PCTL} `,
      session.guarded ? el("button", { type: "button", id: "login", class: "copy", "data-key": "login", onclick: () => show(main, loginPage("What you may do depends on who you are.")) }, "log in with a token") : null);
    document.getElementById("version").textContent = `version ${known.version}`;
    if (!stays) {
      show(main, made);
      settled = standby ? null : page.hash;
    }
    document.title = `${page.title} · Partition Controller`;
  } catch (error) {
    if (looking !== mine) return;
    settled = null;
    if (error.status === 401) show(main, loginPage(`The controller says: ${error.message}`));
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
  const active = !state.zookeeper_connected ? "ZooKeeper does not answer: who is active is not known here."
    : state.current_controller < 0 ? "No controller is known to be active." : `Controller ${state.current_controller} is active: it knows the cluster.`;
  return [
    el("section", { class: "verdict standby" }, el("span", { class: "sign", "aria-hidden": "true" }, "–"),
      el("div", {},
        el("h1", {}, state.taking_over ? `Controller ${state.controller_id} is taking over` : `Controller ${state.controller_id} is ${state.role}`),
        el("p", {}, active))),
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
    el("p", {}, why),
    el("p", {}, "With a client certificate in this browser, load the page again. Else give a bearer token; it is kept until the page is closed."),
    el("div", { class: "filters" }, el("label", { for: "token" }, "token"), field, el("button", { type: "button", "data-key": "enter", onclick: enter }, "enter")));
}

window.addEventListener("hashchange", async () => {
  await look(true);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) happened(); });

afterChanges(() => look());
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
