// What would happen: plans of the controller's own planner, before and after; nothing is changed.

import { ask } from "./api.js";
import { address, card, command, counted, el, link, number, show, table } from "./dom.js";

const SCENARIOS = [
  { name: "broker-loss", title: "brokers fail, all at once", brokers: "which brokers" },
  { name: "rack-loss", title: "a rack fails", rack: true },
  { name: "rolling-restart", title: "brokers restart, one after the other", brokers: "which brokers (none: all)" },
  { name: "drain", title: "a broker gives up its leaderships", brokers: "which broker" },
  { name: "preferred-election", title: "every partition returns to its preferred leader" },
  { name: "stoppable", title: "may these brokers stop now?", brokers: "which brokers" },
];

const find = (name) => SCENARIOS.find((one) => one.name === name) ?? SCENARIOS[0];

/** `#/what-if/SCENARIO/ARGUMENT`: an address that can be passed on. */
export async function whatIfPage({ known, parts: [name, argument = ""], signal, again }) {
  const scenario = find(name);
  const chosen = el("select", { id: "scenario", "data-key": "scenario" }, SCENARIOS.map((one) => el("option", { value: one.name }, one.title)));
  chosen.value = scenario.name;
  const racks = [...new Set(known.cluster.brokers.map((broker) => broker.rack).filter((rack) => rack !== null))].sort();
  const field = scenario.rack
    ? el("select", { id: "argument", "data-key": "argument" }, racks.map((rack) => el("option", { value: rack }, rack)))
    : el("input", { id: "argument", "data-key": "argument", maxlength: 300, placeholder: "1,2" });
  if (argument) field.value = argument;
  const wanted = () => address("what-if", chosen.value, ...(scenario.name === chosen.value && field.value.trim() ? [field.value.trim()] : []));
  const go = () => {
    const hash = wanted();
    if (hash === location.hash) again();
    else location.hash = hash;
  };
  chosen.addEventListener("change", () => { location.hash = address("what-if", chosen.value); });
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  const said = el("div", { class: "answer", "aria-live": "polite" });
  const needs = scenario.brokers || scenario.rack;
  const complete = name !== undefined && (!scenario.rack || argument) && (argument || !["broker-loss", "drain", "stoppable"].includes(scenario.name));
  // A large cluster takes a while.
  if (complete) {
    show(said, el("p", { class: "quiet" }, "planning ..."));
    answer(scenario, argument, signal).then((found) => show(said, found));
  }
  return [
    el("h1", {}, "What if"),
    card("Question", {},
      el("div", { class: "filters" }, el("label", { for: "scenario" }, "what if"), chosen,
        needs ? [el("label", { for: "argument" }, scenario.rack ? "which rack" : scenario.brokers), field] : null,
        el("button", { type: "button", "data-key": "go", onclick: go }, "plan it")),
      el("p", { class: "quiet" }, `Planned on a copy of the cluster as it is now, by the code that would act. Registered: ${registered(known.cluster.brokers)}.`)),
    said,
  ];
}

function registered(brokers) {
  const ids = brokers.filter((broker) => !broker.gone).map((broker) => broker.id);
  return ids.length > 30 ? `${counted(ids.length, "broker")}, ${ids[0]} to ${ids.at(-1)}` : ids.join(", ") || "none";
}

async function answer(scenario, argument, signal) {
  try {
    if (scenario.name === "stoppable") return stoppable(await ask("stoppable", { brokers: argument }, signal), argument);
    const query = scenario.rack ? { rack: argument } : { brokers: argument };
    return plan(await ask("plan", { scenario: scenario.name, ...query }, signal));
  } catch (error) {
    return card("It cannot be planned", { class: "failure", role: "alert" }, el("p", {}, error.status ? error.message : "The controller does not answer."));
  }
}

function verdict(good, title, text) {
  return el("section", { class: `verdict ${good ? "good" : "bad"}` },
    el("span", { class: "sign", "aria-hidden": "true" }, good ? "✓" : "!"), el("div", {}, el("h2", {}, title), el("p", {}, text)));
}

function plan(found) {
  const more = found.steps_count - found.steps.length;
  return [
    found.safe
      ? verdict(true, "Safe", "At no time is a partition without a leader or below min.insync.replicas, and no record is lost.")
      : verdict(false, "Not safe", "Some partitions would be without a leader or below min.insync.replicas, or lose records."),
    found.steps.map(step),
    more > 0 ? el("p", { class: "quiet" }, `and ${counted(more, "step")} more`) : null,
  ];
}

const MEASURES = [
  { name: "without a leader", before: "offline_before", worst: "offline", after: "offline_after" },
  { name: "below min.insync.replicas", before: "under_min_isr_before", worst: "under_min_isr", after: "under_min_isr_after" },
  { name: "with a replica out of sync", before: "under_replicated_before", worst: "under_replicated" },
  { name: "led from outside the ISR: records are lost", worst: "unclean_elections" },
];

function step(made) {
  const count = (list) => (list ? number(made.counts[list]) : "");
  return card(made.step, { class: "step" },
    table(`Partitions: ${made.step}`, [
      { title: "partitions", cell: (m) => m.name },
      { title: "before", class: "number", cell: (m) => count(m.before) },
      { title: "at worst", class: "number", cell: (m) => el("strong", { class: made.counts[m.worst] ? "worse" : null }, count(m.worst)) },
      { title: "after", class: "number", cell: (m) => count(m.after) },
      { title: "such as", class: "quiet", cell: (m) => some(made[m.worst], made.counts[m.worst]) },
    ], MEASURES),
    leaders(made.leaders),
    el("p", { class: "quiet" }, `${counted(made.counts.moved, "leader")} would change, with ${counted(made.writes_count, "write")} to ZooKeeper.`),
    made.moved.length ? el("details", {}, el("summary", {}, "leaders that would change"), el("ul", { class: "lines" },
      made.moved.map((m) => el("li", {}, `${m.partition}: ${m.from} → ${m.to < 0 ? "none" : m.to}${m.unclean ? ", which is not in sync" : ""}`)),
      made.counts.moved > made.moved.length ? el("li", { class: "quiet" }, `and ${number(made.counts.moved - made.moved.length)} more`) : null)) : null,
    made.notes.length ? el("ul", { class: "lines" }, made.notes.map((note) => el("li", {}, note))) : null);
}

function some(names, count) {
  const shown = names.slice(0, 5).join(", ");
  return count > 5 ? `${shown} and ${number(count - 5)} more` : shown;
}

/** Leaderships of the brokers where they change. */
function leaders(found) {
  const rows = Object.entries(found).filter(([, { before, after }]) => before !== after);
  if (!rows.length) return null;
  const most = Math.max(1, ...rows.flatMap(([, { before, after }]) => [before ?? 0, after ?? 0]));
  const bar = (value, kind) => {
    const made = el("span", { class: `amount ${kind}`, "aria-hidden": "true" });
    made.style.width = `${(100 * (value ?? 0)) / most}%`;
    return made;
  };
  return el("details", { open: rows.length <= 12 }, el("summary", {}, `leaderships of ${counted(rows.length, "broker")}`),
    el("ul", { class: "bars" }, rows.map(([id, { before, after }]) =>
      el("li", {}, el("span", { class: "id" }, `broker ${id}`), el("span", { class: "both" }, bar(before, "was"), bar(after, "is")),
        el("span", { class: "facts" }, `${before === null ? "not there" : number(before)} → ${after === null ? "gone" : number(after)}`)))));
}

function stoppable(found, ids) {
  const left = found.reasons_count - found.reasons.length;
  return [
    found.stoppable
      ? verdict(true, "They may stop now", `${counted(found.margin, "more broker")} may then fail before a partition is without a leader or below min.insync.replicas.`)
      : verdict(false, "They may not stop now", found.largest_safe_set.length ? `These may stop together: ${found.largest_safe_set.join(", ")}.` : "None of them may."),
    found.reasons.length ? card(counted(found.reasons_count, "reason"), {}, table("Reasons", [
      { title: "why", cell: (r) => r.text },
      { title: "partition", class: "narrow", cell: (r) => (r.topic === null ? "" : link(["topic", r.topic, r.partition], {}, `${r.topic}-${r.partition}`)) },
      { title: "what would change it", class: "quiet", cell: (r) => r.change },
    ], found.reasons), left > 0 ? el("p", { class: "quiet" }, `and ${number(left)} more`) : null, command(`pctl stoppable ${ids}`)) : null,
  ];
}
