// All partitions as a map that can be zoomed into, and a list of topics.

import { ask } from "./api.js";
import { address, card, counted, el, link, number, table } from "./dom.js";
import { heat } from "./heat.js";
import { worstOf } from "./worst.js";

export function tileName(tile) {
  return tile.first === tile.last ? String(tile.first) : `${tile.first} to ${tile.last}, ${counted(tile.size, "topic")}`;
}

/** One topic: its page; several: the map of them alone. */
export function openTiles(tile) {
  location.hash = tile.first === tile.last ? address("topic", tile.first) : address("partitions", tile.first, tile.last);
}

const search = { match: "", trouble: false };

export async function topicsPage({ parts: [first = "", last = ""], signal, again }) {
  const rows = el("div", {});
  const [map] = await Promise.all([ask("heat", { from: first, to: last }, signal), list(rows, "", signal)]);
  const field = el("input", {
    type: "search", id: "match", maxlength: 249, "data-key": "match", value: search.match,
    oninput: () => { search.match = field.value; list(rows, ""); },
  });
  const trouble = el("input", {
    type: "checkbox", id: "trouble", "data-key": "trouble", checked: search.trouble,
    onchange: () => { search.trouble = trouble.checked; list(rows, ""); },
  });
  field.value = search.match;
  return [
    el("h1", {}, "Partitions"),
    first || last ? el("p", {}, link(["partitions"], {}, "all topics"), ` › ${first} to ${last}`) : null,
    card(counted(map.of, "topic"), {}, heat("Partitions by topic", map.tiles, tileName, openTiles)),
    card("Topics", {},
      el("div", { class: "filters" }, el("label", { for: "match" }, "name has"), field, trouble, el("label", { for: "trouble" }, "only with something wrong")),
      rows),
  ];
}

const COLUMNS = [
  { title: "topic", cell: (t) => link(["topic", t.name], {}, t.name) },
  { title: "state", class: "narrow", cell: (t) => state(worstOf(t)) },
  { title: "partitions", class: "number", cell: (t) => number(t.partitions) },
  { title: "without a leader", class: "number", cell: (t) => number(t.offline) },
  { title: "below min ISR", class: "number", cell: (t) => number(t.under_min_isr) },
  { title: "out of sync", class: "number", cell: (t) => number(t.under_replicated) },
  { title: "being reassigned", class: "number", cell: (t) => number(t.moving) },
];

export function state(kind) {
  return el("span", { class: `chip ${kind.class}` }, kind.sign ? `${kind.sign} ${kind.name}` : kind.name);
}

let asked = 0;

/** Show the rows after a name; with those before them if it is not empty. */
async function list(rows, after, signal = undefined) {
  const mine = ++asked;
  const found = await ask("topics", { match: search.match, trouble: search.trouble ? 1 : 0, after, limit: 50 }, signal);
  if (mine !== asked) return;
  const last = found.topics.at(-1);
  const parts = [table("Topics", COLUMNS, found.topics, "no topic is like this")];
  const pages = el("p", { class: "pages" },
    after ? el("button", { type: "button", onclick: () => list(rows, "") }, "from the beginning") : null,
    found.more ? el("button", { type: "button", onclick: () => list(rows, last.name) }, "next") : null);
  rows.replaceChildren(...parts, pages);
}
