// One screen: is it well, what is wrong, what is going on.

import { ask } from "./api.js";
import { brokerMap } from "./brokers.js";
import { clusterActs } from "./changes.js";
import { card, command, counted, el, link, number } from "./dom.js";
import { heat } from "./heat.js";
import { recordTable } from "./records.js";
import { openTiles, tileName } from "./topics.js";
import { kindOf, WELL } from "./worst.js";

export async function overview({ signal, known }) {
  const { cluster } = known;
  const [map, recent] = await Promise.all([ask("heat", { tiles: 480 }, signal), ask("history", { limit: 12 }, signal)]);
  return [
    verdict(cluster),
    figures(cluster),
    el("div", { class: "columns" },
      card("What is wrong", { class: "wide" }, findings(cluster)),
      card("What is going on", {}, goingOn(cluster, known.state))),
    card("Brokers and racks", {}, brokerMap(cluster.brokers)),
    card("Partitions", {}, heat("Partitions by topic", map.tiles, tileName, openTiles)),
    clusterActs(cluster),
    card(el("h2", {}, "Newest changes ", link(["history"], { class: "more" }, "all")), {}, recordTable(recent.records, "Newest changes", true)),
  ];
}

function verdict({ well, findings, attention }) {
  const looked = attention.length ? ` ${counted(attention.length, "line")} for somebody to look at.` : "";
  const title = well ? "Well" : findings.length === 1 ? "1 thing is wrong" : `${findings.length} things are wrong`;
  const text = well ? "Every partition has a leader and all its replicas in sync." : (findings.find(isGrave) ?? findings[0]).text;
  return el("section", { class: `verdict ${well ? "good" : worstClass(findings)}`, "aria-live": "polite" },
    el("span", { class: "sign", "aria-hidden": "true" }, well ? "✓" : "!"),
    el("div", {}, el("h1", {}, title), el("p", {}, text + looked)));
}

function worstClass(findings) {
  return findings.some(isGrave) ? "bad" : "uneasy";
}

function isGrave(found) {
  return ["unavailable_partitions", "under_min_isr_partitions"].includes(found.what);
}

function figures({ counts, brokers }) {
  const there = brokers.filter((broker) => !broker.gone).length;
  const figure = (value, name, kind = "") => el("div", { class: `figure ${kind}` }, el("dd", {}, value), el("dt", {}, name));
  const bad = (count, name, kind) => figure(number(count), name, count ? kind : "zero");
  return el("dl", { class: "figures" },
    figure(there === brokers.length ? number(there) : `${there} of ${brokers.length}`, "brokers", there === brokers.length ? "" : "behind"),
    figure(number(counts.topics), "topics"),
    figure(number(counts.partitions), "partitions"),
    bad(counts.offline, "without a leader", "offline"),
    bad(counts.under_min_isr, "below min ISR", "short"),
    bad(counts.under_replicated, "out of sync", "behind"),
    bad(counts.moving, "being reassigned", "moving"),
    bad(counts.deleting, "deleting", "moving"));
}

function findings({ findings, attention }) {
  if (!findings.length && !attention.length) return el("p", { class: "quiet" }, "Nothing.");
  return el("ul", { class: "findings" },
    findings.map((found) => {
      const kind = kindOf(found.what);
      return el("li", {}, el("span", { class: `badge ${kind === WELL ? "other" : kind.class}`, "aria-hidden": "true" }, kind.sign || "!"),
        el("div", {}, el("p", {}, found.text), command(found.command)));
    }),
    attention.map((text) => el("li", {}, el("span", { class: "badge other", "aria-hidden": "true" }, "i"), el("p", {}, text))));
}

function audited(brokers) {
  const there = brokers.filter((broker) => !broker.gone), equal = there.filter((broker) => broker.audit === "equal").length;
  const different = there.filter((broker) => broker.differences).length;
  if (different) return `audit: ${counted(different, "broker")} hold otherwise than told`;
  return `audit: ${equal} of ${counted(there.length, "broker")} hold what they were told`;
}

function goingOn({ unfinished, brokers }, state) {
  const lines = unfinished.map((found) => el("li", {}, el("div", {}, el("p", {}, found.text), command(found.command))));
  if (state.event) lines.unshift(el("li", {}, el("p", {}, `Event ${state.event}, and ${state.events_queued} wait`)));
  return [
    lines.length ? el("ul", { class: "findings" }, lines) : el("p", { class: "quiet" }, "Nothing is under way."),
    el("p", { class: "quiet" }, link(["work"], {}, "how far it is"), " · ", link(["audit"], {}, audited(brokers))),
  ];
}
