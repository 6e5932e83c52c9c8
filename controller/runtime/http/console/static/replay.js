// A scrubber over what is still in the controller's memory: the cluster as it was at a moment of the present term.

import { ask } from "./api.js";
import { card, counted, el, number, show } from "./dom.js";
import { heat } from "./heat.js";
import { recordTable } from "./records.js";
import { openTiles, tileName } from "./topics.js";

/** Positions of the slider, and how long it must rest before its moment is asked for. */
const STEPS = 1000, REST_MS = 250;
const KINDS = [["leaders", "leaders and ISRs"], ["brokers", "brokers"], ["topics", "topics"], ["moves", "reassignments"], ["requests", "requests"], ["refusals", "refusals"], ["audit", "audit"]];

const clock = (us) => new Date(us / 1000).toISOString().replace("T", " ").slice(0, 23);

export async function replayPage({ signal, again }) {
  const scale = await ask("scale", {}, signal);
  const from = Number(scale.from_us), until = Number(scale.until_us);
  const moment = el("div", { class: "moment" }), said = el("output", { for: "at", class: "when", "aria-live": "off" });
  const slider = el("input", { type: "range", id: "at", min: 0, max: STEPS, value: STEPS, "data-key": "at" });
  slider.value = STEPS;
  const at = () => Math.round(from + ((until - from) * slider.value) / STEPS);
  let timer = 0, asked = 0;
  const tell = () => {
    said.textContent = clock(at());
    slider.setAttribute("aria-valuetext", `${clock(at())} UTC`);
  };
  const look = async () => {
    const mine = ++asked;
    try {
      const [then, recent] = await Promise.all([ask("moment", { at_us: at() }, signal), ask("history", { until_us: at(), limit: 20 }, signal)]);
      if (mine === asked) show(moment, shown(then), card("What happened before", {}, recordTable(recent.records, "What happened before")));
    } catch (error) {
      if (mine === asked && error.name !== "AbortError") show(moment, el("p", { class: "note", role: "alert" }, error.message));
    }
  };
  slider.addEventListener("input", () => {
    tell();
    clearTimeout(timer);
    timer = setTimeout(look, REST_MS);
  });
  tell();
  look();
  return [
    el("h1", {}, "Replay"),
    card("A moment of the present term", {},
      chart(scale),
      el("p", { class: "scrubber" }, el("label", { for: "at", class: "hidden" }, "moment"), slider),
      el("p", { class: "ends" }, el("span", {}, clock(from).slice(11, 19)), el("strong", {}, said, " UTC"), el("span", {}, clock(until).slice(11, 19))),
      el("p", { class: "pages" }, el("button", { type: "button", "data-key": "until now", onclick: again }, "until now"),
        el("span", { class: "quiet" }, `What is shown is undone from what is in memory. Replicas and settings are those of now.`))),
    moment,
  ];
}

function chart({ parts, counts }) {
  const sums = Array.from({ length: parts }, (_, part) => KINDS.reduce((sum, [name]) => sum + (counts[name]?.[part] ?? 0), 0));
  const most = Math.max(1, ...sums);
  const columns = sums.map((sum, part) => {
    const made = el("span", { class: counts.brokers?.[part] || counts.refusals?.[part] ? "grave" : null });
    made.style.height = sum ? `${Math.max(6, (100 * Math.log1p(sum)) / Math.log1p(most))}%` : "0";
    return made;
  });
  const words = KINDS.map(([name, title]) => [title, (counts[name] ?? []).reduce((a, b) => a + b, 0)]).filter(([, sum]) => sum);
  return [
    el("div", { class: "chart", "aria-hidden": "true" }, columns),
    el("p", { class: "quiet" }, words.length ? `Changes in this time: ${words.map(([title, sum]) => `${title} ${number(sum)}`).join(", ")}. Marked: brokers that came or went, and refusals.` : "Nothing has happened in this time."),
  ];
}

function shown(then) {
  const { counts } = then;
  return card(`${counted(counts.partitions, "partition")} of ${counted(counts.topics, "topic")}, ${counted(then.brokers.length, "broker")}`, {},
    el("ul", { class: "lines", "aria-live": "polite" },
      then.gone.map((id) => el("li", {}, `broker ${id} was gone`)),
      then.findings.map((found) => el("li", {}, found.text)),
      then.gone.length || then.findings.length ? null : el("li", { class: "quiet" }, "Every partition had a leader and all its replicas in sync.")),
    heat("Partitions at that moment", then.tiles, tileName, openTiles));
}
