// Brokers in their racks, and one broker: why it is as it is.

import { ask } from "./api.js";
import { brokerActs } from "./changes.js";
import { card, command, counted, el, link, number, table } from "./dom.js";
import { recordTable } from "./records.js";

/** The states of a broker in words, the gravest first. */
function states(broker) {
  return [
    broker.gone && "gone",
    broker.problem && "takes no pushes",
    broker.failed_disk_replicas && `${broker.failed_disk_replicas} on a failed disk`,
    broker.differences && `${broker.differences} held otherwise than told`,
    broker.shutting_down && "shutting down",
    broker.out_of_sync && `${number(broker.out_of_sync)} out of sync`,
    broker.drained && "drained",
    broker.may_stop && "may stop",
    broker.pending && `${number(broker.pending)} pending`,
  ].filter(Boolean);
}

function mood(broker) {
  if (broker.gone) return "offline";
  if (broker.problem || broker.failed_disk_replicas || broker.differences) return "short";
  return broker.out_of_sync || broker.shutting_down ? "behind" : "well";
}

export function brokerMap(brokers) {
  const most = Math.max(1, ...brokers.map((broker) => broker.replicas));
  const racks = new Map();
  for (const broker of brokers) {
    const rack = broker.gone ? "gone" : broker.rack ?? "";
    racks.set(rack, [...(racks.get(rack) ?? []), broker]);
  }
  const order = [...racks.keys()].sort((a, b) => (a === "gone") - (b === "gone") || (a < b ? -1 : 1));
  return el("div", { class: "racks" }, order.map((rack) =>
    el("section", { class: "rack" },
      el("h3", {}, rack === "gone" ? "not registered" : rack ? `rack ${rack}` : "no rack"),
      el("ul", {}, racks.get(rack).map((broker) => el("li", {}, brokerTile(broker, most)))))));
}

function brokerTile(broker, most) {
  const said = states(broker);
  const led = el("span", { class: "led" }), held = el("span", { class: "held" });
  led.style.width = `${(100 * broker.led) / most}%`;
  held.style.width = `${(100 * (broker.replicas - broker.led)) / most}%`;
  const words = `broker ${broker.id}: ${said.join(", ") || "well"}; leads ${broker.led} of ${broker.replicas} replicas`;
  return link(["broker", broker.id], { class: `broker ${mood(broker)}`, "data-key": `broker ${broker.id}`, "aria-label": words, title: words },
    el("span", { class: "id" }, broker.id),
    el("span", { class: "load", "aria-hidden": "true" }, led, held),
    el("span", { class: "facts" }, broker.gone ? `${number(broker.replicas)} replicas` : `${number(broker.led)} led / ${number(broker.replicas)}`),
    el("span", { class: "state" }, said[0] ?? "in sync"));
}

const COLUMNS = [
  { title: "broker", class: "number", cell: (b) => link(["broker", b.id], {}, b.id) },
  { title: "rack", cell: (b) => b.rack ?? "" },
  { title: "state", cell: (b) => states(b).join(", ") || "in sync" },
  { title: "leads", class: "number", cell: (b) => number(b.led) },
  { title: "replicas", class: "number", cell: (b) => number(b.replicas) },
  { title: "out of sync", class: "number", cell: (b) => number(b.out_of_sync) },
  { title: "pending pushes", class: "number", cell: (b) => number(b.pending) },
  { title: "audit", cell: (b) => b.audit ?? "" },
  { title: "endpoints", class: "quiet", cell: (b) => b.endpoints.join(" ") },
];

export async function brokersPage({ known }) {
  const { brokers } = known.cluster;
  return [
    el("h1", {}, "Brokers"),
    card("By rack", {}, brokerMap(brokers)),
    card(counted(brokers.length, "broker"), {}, table("Brokers", COLUMNS, brokers, "no broker is registered"), command("pctl brokers")),
  ];
}

export async function brokerPage({ known, parts: [id], signal }) {
  const broker = known.cluster.brokers.find((one) => String(one.id) === id);
  const [why, recent] = await Promise.all([ask("broker", { id }, signal), ask("history", { broker: id, limit: 50 }, signal)]);
  return [
    el("h1", {}, `Broker ${id}`),
    el("p", { class: "path" }, "What if it ", link(["what-if", "broker-loss", id], {}, "fails"), ", ", link(["what-if", "rolling-restart", id], {}, "restarts"), ", ",
      link(["what-if", "drain", id], {}, "is drained"), "; ", link(["what-if", "stoppable", id], {}, "may it stop now?")),
    /^\d{1,10}$/.test(id) ? brokerActs(Number(id), broker) : null,
    card("Why it is as it is", {}, el("ul", { class: "lines" }, why.words.map((line) => el("li", {}, line))), command(why.command)),
    card("Its history", {}, recordTable(recent.records, "History of the broker")),
  ];
}
