// What is under way, with how far it is: reassignments and deletions.

import { ask } from "./api.js";
import { card, command, counted, el, link, number, table } from "./dom.js";

/** The most that was seen at once since nothing was, so that there is something to be done a part of. */
const most = { reassignments: 0, deletions: 0 };

export async function workPage({ signal, known }) {
  const found = await ask("work", {}, signal);
  return [
    el("h1", {}, "Under way"),
    card(counted(found.reassignments_count, "reassignment"), {}, overall("reassignments", found.reassignments_count),
      table("Reassignments", MOVES, found.reassignments, "No partition is being reassigned."), more(found, "reassignments"), command("pctl reassign list")),
    card(found.deletions_count === 1 ? "1 topic being deleted" : `${number(found.deletions_count)} topics being deleted`, {}, overall("deletions", found.deletions_count),
      table("Deletions", DELETIONS, found.deletions, "No topic is being deleted."), more(found, "deletions"), command("pctl topics list")),
    pushes(known.cluster.brokers),
  ];
}

function overall(what, count) {
  most[what] = count ? Math.max(most[what], count) : 0;
  if (most[what] <= 1) return null;
  const done = most[what] - count;
  return el("p", {}, bar(done, most[what], `${done} of ${most[what]} ${what} done`), ` ${number(done)} of ${number(most[what])} done since this page saw them`);
}

function more(found, what) {
  const left = found[`${what}_count`] - found[what].length;
  return left > 0 ? el("p", { class: "quiet" }, `and ${number(left)} more`) : null;
}

export function bar(value, max, label) {
  return el("progress", { value, max: Math.max(max, 1), "aria-label": label });
}

const MOVES = [
  { title: "partition", cell: (m) => link(["topic", m.topic, m.partition], {}, `${m.topic}-${m.partition}`) },
  { title: "replicas it gets", class: "narrow", cell: (m) => m.replicas.filter((id) => !m.removing.includes(id)).join(", ") },
  { title: "new ones in sync", class: "narrow", cell: (m) => (m.queued ? el("span", { class: "chip plain" }, "waits for its turn")
    : [bar(m.synced, m.adding.length, `${m.synced} of ${m.adding.length} in sync`), ` ${m.synced} of ${m.adding.length}`]) },
  { title: "removing", class: "narrow", cell: (m) => m.removing.join(", ") },
  { title: "waits for", class: "quiet", cell: (m) => m.why },
];

const DELETIONS = [
  { title: "topic", cell: (d) => link(["topic", d.topic], {}, d.topic) },
  { title: "replicas deleted", class: "narrow", cell: (d) => {
    const done = Math.max(d.replicas - d.replicas_left, 0);
    return [bar(done, d.replicas, `${done} of ${d.replicas} replicas deleted`), ` ${number(done)} of ${number(d.replicas)}`];
  } },
  { title: "state", class: "narrow", cell: (d) => d.phase },
  { title: "waits for", class: "quiet", cell: (d) => d.why },
];

function pushes(brokers) {
  const waiting = brokers.filter((broker) => broker.pending);
  return card("Pushes to brokers", {}, table("Pushes that wait", [
    { title: "broker", class: "number", cell: (b) => link(["broker", b.id], {}, b.id) },
    { title: "partitions it is not told yet", class: "number", cell: (b) => number(b.pending) },
    { title: "why", class: "quiet", cell: (b) => b.problem },
  ], waiting, "Every broker was told everything."));
}
