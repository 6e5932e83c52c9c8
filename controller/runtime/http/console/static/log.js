// History, audit and controllers.

import { ask } from "./api.js";
import { address, card, command, counted, el, link, number, table } from "./dom.js";
import { recordTable } from "./records.js";

const KINDS = ["audit", "broker", "config", "controller", "failover", "feature", "isr", "leader", "partition", "reassignment", "reject", "replica", "request", "topic"];
const wanted = { topic: "", partition: "", broker: "", kinds: "", until_us: "" };

export async function historyPage({ signal, again }) {
  const rows = el("div", {});
  const look = async () => {
    const query = { ...wanted, partition: wanted.topic ? wanted.partition : "", limit: 200 };
    try {
      const found = await ask("history", query, signal);
      const oldest = found.records.at(-1);
      rows.replaceChildren(recordTable(found.records, "History"), el("p", { class: "pages" },
        wanted.until_us ? el("button", { type: "button", onclick: () => { wanted.until_us = ""; look(); } }, "newest") : null,
        found.more && oldest ? el("button", { type: "button", onclick: () => { wanted.until_us = micros(oldest.ts); look(); } }, "older") : null,
        el("span", { class: "quiet" }, ` ${number(found.forgotten)} older records are in the log files only.`)));
    } catch (error) {
      if (error.name !== "AbortError") rows.replaceChildren(el("p", { class: "note" }, error.message));
    }
  };
  await look();
  const field = (name, label, attributes) => {
    const input = el("input", { id: name, "data-key": name, ...attributes, onchange: () => { wanted[name] = input.value; wanted.until_us = ""; look(); } });
    input.value = wanted[name];
    return [el("label", { for: name }, label), input];
  };
  const kinds = el("select", { id: "kinds", "data-key": "kinds", onchange: () => { wanted.kinds = kinds.value; wanted.until_us = ""; look(); } },
    el("option", { value: "" }, "all kinds"), KINDS.map((kind) => el("option", { value: kind }, kind)));
  kinds.value = wanted.kinds;
  return [
    el("h1", {}, "History"),
    card("Changes, newest first", {},
      el("div", { class: "filters" }, field("topic", "topic", { maxlength: 249 }), field("partition", "partition", { inputmode: "numeric", size: 6 }),
        field("broker", "broker", { inputmode: "numeric", size: 6 }), el("label", { for: "kinds" }, "kind"), kinds),
      rows),
  ];
}

/** Microseconds since 1970 of a record's time, as text: they are more than a number of JavaScript holds exactly with digits to spare. */
function micros(ts) {
  const [, whole, parts = ""] = /^(.*?)(?:\.(\d+))?Z$/.exec(ts);
  return String(Date.parse(`${whole}Z`) * 1000 + Number(parts.padEnd(6, "0").slice(0, 6)));
}

const VERDICTS = {
  AUDIT_EQUAL: ["well", "holds what it was told"], AUDIT_DIFFERENT: ["offline", "holds something else"],
};

export async function auditPage({ signal }) {
  const found = await ask("audit", {}, signal);
  const verdict = (b) => {
    const [kind, words] = VERDICTS[b.verdict] ?? ["plain", b.verdict.replace("AUDIT_", "").toLowerCase().replaceAll("_", " ")];
    return [el("span", { class: `chip ${kind}` }, words), b.why ? ` ${b.why}` : ""];
  };
  return [
    el("h1", {}, "Audit"),
    el("p", { class: "quiet" }, "Brokers keep digests of what they were told; the controller compares them all the time."),
    card("Brokers", {}, table("Audit of brokers", [
      { title: "broker", class: "number", cell: (b) => link(["broker", b.broker_id], {}, b.broker_id) },
      { title: "verdict", cell: verdict },
      { title: "differences", class: "number", cell: (b) => number(b.differences) },
      { title: "compared (UTC)", class: "time", cell: (b) => (b.asked_at_ms === "0" ? "never" : new Date(Number(b.asked_at_ms)).toISOString().slice(11, 19)) },
    ], found.brokers, "no broker is registered"), command("pctl audit")),
    card("Partitions held otherwise than told", {}, table("Problems", [
      { title: "partition", cell: (p) => link(["topic", p.topic, p.partition], {}, `${p.topic}-${p.partition}`) },
      { title: "broker", class: "number", cell: (p) => link(["broker", p.broker_id], {}, p.broker_id) },
      { title: "what", cell: (p) => p.what },
      { title: "what mends it", cell: (p) => p.mend },
    ], found.problems, "None is known."), found.problems_left ? el("p", { class: "quiet" }, `and ${number(found.problems_left)} more`) : null),
  ];
}

/** The console of another controller, if its address is one that a browser can reach. */
export function consoleOf({ http }) {
  if (!/^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9.-]+):\d{1,5}$/.test(http)) return null;
  if (http.startsWith("0.0.0.0:") || http.startsWith("[::]:")) return null;
  return `${location.protocol}//${http}/ui`;
}

/** What a standby has read in advance for its next term. */
function memory({ active, silent, in_memory: found }) {
  if (silent) return el("span", { class: "quiet" }, silent);
  if (active) return "";
  if (!found) return "nothing: warm_standby is off";
  const behind = found.behind ? `, ${counted(found.behind, "change")} behind for ${found.behind_s} s` : "";
  return `${found.warmth}: ${counted(found.states, "partition state")}${behind}`;
}

export async function controllersPage({ known, signal }) {
  const { state } = known;
  const controllers = await ask("controllers", {}, signal);
  return [
    el("h1", {}, "Controllers"),
    card(counted(controllers.length, "controller"), {}, table("Controllers", [
      { title: "controller", class: "number", cell: (c) => c.id },
      { title: "role", cell: (c) => [el("span", { class: `chip ${c.active ? "well" : "plain"}` }, c.active ? "active" : "standby"), c.this ? " this one" : ""] },
      { title: "in memory", cell: memory },
      { title: "gRPC", class: "quiet", cell: (c) => c.grpc },
      { title: "HTTP", class: "quiet", cell: (c) => c.http },
      { title: "console", cell: (c) => (!c.this && consoleOf(c) ? el("a", { href: consoleOf(c) }, "open") : "") },
    ], controllers, "ZooKeeper names none, or does not answer"), command("pctl controllers")),
    card("This controller", {}, el("dl", { class: "facts" },
      [["id", state.controller_id], ["role", state.role], ["controller epoch", state.controller_epoch ?? "none"],
        ["ZooKeeper", state.zookeeper_connected ? "connected" : "does not answer"], ["event", state.event ?? "none"], ["events queued", number(state.events_queued)]]
        .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))),
  ];
}
