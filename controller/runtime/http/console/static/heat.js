// A map of partitions: one tile for a partition, a topic, or neighbours by name. One tile has the keyboard at a time.

import { counted, el, number, visible } from "./dom.js";
import { inWords, KINDS, WELL, worstOf } from "./worst.js";

/** Tiles up to this number are large enough for names. */
const NAMED_MAX = 40;

function badly(tile, worst) {
  return worst.field ? `${number(tile[worst.field])} of ${number(tile.partitions)} ${worst.short}` : counted(tile.partitions, "partition");
}

/** `tiles` of the API; `name(tile)` in words; `open(tile)` when one is chosen. */
export function heat(label, tiles, name, open) {
  const words = el("p", { class: "said", "aria-live": "polite" }, "Point at a tile, or go through them with the arrow keys.");
  const named = tiles.length <= NAMED_MAX && tiles.some((tile) => tile.partitions > 1);
  const size = named ? "named" : tiles.length > 600 ? "small" : tiles.length > 120 ? "middle" : "large";
  const say = (tile) => { words.textContent = visible(`${name(tile)}: ${inWords(tile, counted)}`); };
  const made = tiles.map((tile, position) => {
    const worst = worstOf(tile);
    return el("button", {
      type: "button", class: `tile ${worst.class}${tile.moving ? " moving" : ""}`, tabindex: position ? "-1" : "0",
      "data-key": `tile ${tile.first}`, "aria-label": `${name(tile)}: ${inWords(tile, counted)}`,
      onmouseenter: () => say(tile), onfocus: () => say(tile), onclick: () => open(tile),
    }, named ? [el("b", {}, name(tile)), el("span", {}, worst.sign), el("small", {}, badly(tile, worst))] : worst.sign);
  });
  const grid = el("div", { class: `heat ${size}`, role: "group", "aria-label": label, onkeydown: (event) => move(event, grid, made) }, made);
  return el("div", { class: "map" }, grid, words, legend());
}

function move(event, grid, made) {
  const at = made.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = made.filter((tile) => tile.offsetTop === made[0].offsetTop).length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const wanted = event.key === "Home" ? 0 : event.key === "End" ? made.length - 1 : at + (steps[event.key] ?? 0);
  if (wanted === at || !made[wanted]) return;
  event.preventDefault();
  made[at].tabIndex = -1;
  made[wanted].tabIndex = 0;
  made[wanted].focus();
}

function legend() {
  return el("ul", { class: "legend", "aria-label": "Legend" },
    [WELL, ...[...KINDS].reverse()].map((kind) =>
      el("li", {}, el("span", { class: `tile ${kind.class}`, "aria-hidden": "true" }, kind.sign), kind.name)),
    el("li", {}, el("span", { class: "tile well moving", "aria-hidden": "true" }), "being reassigned"));
}
