// One topic, and one partition: replicas, ISR, history and why.

import { ask } from "./api.js";
import { partitionActs, topicActs } from "./changes.js";
import { address, card, command, counted, el, link, number, table } from "./dom.js";
import { heat } from "./heat.js";
import { recordTable } from "./records.js";
import { state } from "./topics.js";
import { kindOf } from "./worst.js";

const ROWS = 100;
const pages = { topic: "", after: -1 };

export async function topicPage({ parts: [name, first, last], signal, again }) {
  if (pages.topic !== name) Object.assign(pages, { topic: name, after: -1 });
  const [map, found, recent] = await Promise.all([
    ask("heat", { topic: name, from: first, to: last }, signal),
    ask("topic", { topic: name, after: pages.after, limit: ROWS }, signal),
    history({ topic: name, limit: 20 }, signal),
  ]);
  const open = (tile) => {
    location.hash = tile.first === tile.last ? address("topic", name, tile.first) : address("range", name, tile.first, tile.last);
  };
  const tile = (t) => (t.first === t.last ? `partition ${t.first}` : `partitions ${t.first} to ${t.last}`);
  const turn = (after) => () => { pages.after = after; again(); };
  return [
    el("p", { class: "path" }, link(["partitions"], {}, "Partitions"), first === undefined ? null : [" › ", link(["topic", name], {}, name)]),
    el("h1", { class: "name" }, name, first === undefined ? null : ` ${first} to ${last}`),
    el("p", { class: "quiet" }, `${counted(found.partitions, "partition")}, min.insync.replicas ${found.min_isr}, id ${found.id || "none"}`,
      found.deleting ? el("strong", {}, ", being deleted") : null),
    card("Its partitions", {}, heat("Partitions of the topic", map.tiles, tile, open)),
    card("Replicas", {}, table("Partitions of the topic", columns(name), found.rows),
      el("p", { class: "pages" },
        pages.after >= 0 ? el("button", { type: "button", "data-key": "begin", onclick: turn(-1) }, "from the beginning") : null,
        found.more ? el("button", { type: "button", "data-key": "next", onclick: turn(found.rows.at(-1).partition) }, "next") : null)),
    topicActs(name),
    card("Its history", {}, recent),
  ];
}

const columns = (name) => [
  { title: "partition", class: "number", cell: (p) => link(["topic", name, p.partition], {}, p.partition) },
  { title: "state", class: "narrow", cell: (p) => state(kindOf(p.worst)) },
  { title: "leader", class: "number", cell: (p) => (p.leader < 0 ? "none" : p.leader) },
  { title: "replicas", cell: (p) => replicas(p) },
  { title: "leader epoch", class: "number", cell: (p) => (p.leader_epoch === null ? "" : number(p.leader_epoch)) },
];

function replicas(row, large = false) {
  return el("ol", { class: `replicas ${large ? "big" : ""}` }, row.replicas.map((id, position) => {
    const offline = row.offline.includes(id), inSync = row.isr.includes(id), leads = row.leader === id;
    const words = [
      leads && "leads", position === 0 && "preferred", offline && "offline", inSync ? "in sync" : "out of sync",
      row.adding.includes(id) && "being added", row.removing.includes(id) && "being removed",
    ].filter(Boolean).join(", ");
    const kind = offline ? "offline" : inSync ? "well" : "behind";
    const id_ = link(["broker", id], { class: `replica ${kind}${leads ? " leads" : ""}`, title: `broker ${id}: ${words}`, "aria-label": `broker ${id}: ${words}` },
      leads ? "★ " : null, id);
    return el("li", {}, id_, large ? el("span", { class: "quiet" }, words) : null);
  }));
}

/** History is for valid names only: what a znode is called otherwise has none. */
async function history(query, signal) {
  try {
    return recordTable((await ask("history", query, signal)).records, "History");
  } catch (error) {
    if (error.status !== 400) throw error;
    return el("p", { class: "quiet" }, error.message);
  }
}

export async function partitionPage({ parts: [topic, partition], signal }) {
  const [found, recent] = await Promise.all([
    ask("partition", { topic, partition }, signal), history({ topic, partition, limit: 50 }, signal),
  ]);
  const { row, why } = found;
  const fact = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
  return [
    el("p", { class: "path" }, link(["partitions"], {}, "Partitions"), " › ", link(["topic", topic], {}, topic)),
    el("h1", { class: "name" }, `${topic}-${partition} `, state(kindOf(row.worst))),
    el("p", { class: "lead" }, why.summary),
    el("div", { class: "columns" },
      card("Replicas", { class: "wide" }, replicas(row, true)),
      card("State", {}, el("dl", { class: "facts" },
        fact("leader", row.leader < 0 ? "none" : row.leader), fact("in sync", row.isr.join(", ") || "none"), fact("min.insync.replicas", found.min_isr),
        fact("leader epoch", row.leader_epoch ?? "none"), fact("partition epoch", row.partition_epoch ?? "none"), fact("controller epoch", row.controller_epoch ?? "none"),
        row.recovering ? fact("recovering", "elected uncleanly") : null))),
    partitionActs(topic, row),
    card("Why", {},
      el("p", {}, why.decision),
      why.notes.length ? el("ul", { class: "lines" }, why.notes.map((note) => el("li", {}, note))) : null,
      why.rules.length ? el("ol", { class: "rules" }, why.rules.map(rule)) : null,
      command(found.command)),
    card("What would change it", {}, why.changes.length
      ? [el("p", { class: "quiet" }, "What can be tried was tried on a copy of this partition first."), el("ul", { class: "lines" }, why.changes.map((change) => el("li", {}, change)))]
      : el("p", { class: "quiet" }, row.worst ? "Nothing that was tried on a copy of this partition would." : "Nothing needs to.")),
    card("Its history", {}, recent),
  ];
}

function rule(tried) {
  const met = tried.leader >= 0;
  return el("li", {},
    el("p", {}, tried.rule, tried.permitted ? null : el("span", { class: "chip plain" }, "not permitted")),
    el("ul", { class: "candidates" }, tried.candidates.map((candidate) =>
      el("li", { class: candidate.failed ? "fails" : "meets" }, el("span", { "aria-hidden": "true" }, candidate.failed ? "✕ " : "✓ "), candidate.reason))),
    met ? null : el("p", { class: "quiet" }, "No replica qualifies."));
}
