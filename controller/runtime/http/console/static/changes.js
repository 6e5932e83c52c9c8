// Changes: offered to who may, tried on a copy first, and made with a reason.

import { ask, send } from "./api.js";
import { card, counted, el, number, show, table } from "./dom.js";
import { consoleOf } from "./log.js";

/** Who looks, and whether they may change the cluster. */
let session = { may_change: false, why: "" };

export async function permissions(signal) {
  session = await ask("session", {}, signal);
  return session;
}

/** A button that begins a change; null for who may not. `change()`: the change, or a promise of it. */
export function offer(label, title, words, change, fields = []) {
  if (!session.may_change) return null;
  const button = el("button", { type: "button", class: "act", "data-key": `act ${title}`, onclick: () => begin(title, words, change, fields) }, label);
  return button;
}

/** Several of them in a card; null where none is offered. */
export function offers(title, ...buttons) {
  const some = buttons.filter(Boolean);
  return some.length ? card(title, { class: "acts" }, el("p", { class: "pages" }, some)) : null;
}

let done = () => {};

/** `look`: called after a change. */
export function afterChanges(look) {
  done = look;
}

/** `fields`: {name, label, value, hint}: asked for beside the reason, and passed to `change`. */
function begin(title, words, change, fields) {
  const before = document.activeElement, key = before?.dataset.key;
  const trial = el("div", { class: "trial", "aria-live": "polite" });
  const inputs = fields.map(({ name, label, value, hint }) => ({ name, label, hint, input: el("input", { id: `change-${name}`, maxlength: 1000, value }) }));
  const reason = el("input", { id: "change-reason", maxlength: 1000, required: true, autocomplete: "off" });
  const author = session.anonymous ? el("input", { id: "change-author", maxlength: 200, required: true, autocomplete: "name" }) : null;
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "cancel");
  const attempt = el("button", { type: "button", class: "act" }, "try it on a copy");
  const buttons = el("p", { class: "pages" }, attempt, close);
  const row = (id, label, input, hint) => el("p", { class: "field" }, el("label", { for: id }, label), input, hint ? el("span", { class: "quiet" }, hint) : null);
  const dialog = el("dialog", { class: "change", "aria-labelledby": "change-title" },
    el("h2", { id: "change-title" }, title), el("p", {}, words),
    inputs.map(({ name, label, hint, input }) => row(`change-${name}`, label, input, hint)),
    row("change-reason", "reason", reason, "others will read it"),
    author ? row("change-author", "your name", author, "nobody is logged in") : el("p", { class: "quiet" }, `It is recorded as done by ${session.caller}.`),
    trial, buttons);
  const body = async () => ({
    change: await change(Object.fromEntries(inputs.map(({ name, input }) => [name, input.value]))),
    reason: reason.value.trim(), author: author ? author.value.trim() : "",
  });
  const fail = (error) => show(trial, refusal(error));
  const busy = async (button, work) => {
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      fail(error);
    }
    button.disabled = false;
  };
  // What was tried is carried out; another reason or target is tried again.
  dialog.addEventListener("input", () => { show(trial); show(buttons, attempt, close); });
  attempt.addEventListener("click", () => busy(attempt, async () => {
    if (!reason.value.trim()) return void (show(trial, note("a reason must be given")), reason.focus());
    if (author && !author.value.trim()) return void (show(trial, note("a name must be given")), author.focus());
    show(trial, el("p", { class: "quiet" }, "trying ..."));
    const wanted = await body();
    const found = await send("try", wanted);
    show(trial, tried(found));
    if (!found.outcomes.some(effective)) return;
    const go = el("button", { type: "button", class: "act grave" }, `do it: ${title}`);
    go.addEventListener("click", () => busy(go, async () => {
      const made = await send("change", { ...wanted, ticket: found.ticket });
      show(trial, outcome(made.outcomes, "Done."));
      close.textContent = "close";
      show(buttons, close);
      close.focus();
      done();
    }));
    show(buttons, go, close);
  }));
  dialog.addEventListener("close", () => {
    dialog.remove();
    const back = key === undefined ? null : [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
    back?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  (inputs[0]?.input ?? reason).focus();
}

function effective({ error, done: carried, refused }) {
  return !error && (carried > 0 || !refused.length);
}

function note(text) {
  return el("p", { class: "note", role: "alert" }, text);
}

function refusal(error) {
  const where = error.more?.active ? consoleOf(error.more.active) : null;
  return [note(error.status ? error.message : "The controller does not answer."),
    where ? el("p", {}, el("a", { href: where }, `Console of controller ${error.more.active.id}`)) : null];
}

function tried(found) {
  const pushes = Object.keys(found.pushes).length;
  return [
    el("h3", {}, "The dry run"),
    outcome(found.outcomes, null),
    found.notes.map((text) => el("p", {}, text)),
    el("p", {}, found.writes_count ? `${counted(found.writes_count, "write")} to ZooKeeper, pushes to ${counted(pushes, "broker")}.` : "Nothing would be written."),
    found.writes_count ? el("details", {}, el("summary", {}, found.writes_count > found.writes.length ? `the first ${number(found.writes.length)} writes` : "the writes"),
      table("Writes", [
        { title: "znode", cell: (w) => el("code", {}, w.path) },
        { title: "now", class: "quiet", cell: (w) => w.old ?? "absent" },
        { title: "then", cell: (w) => w.new ?? "deleted" },
      ], found.writes)) : null,
  ];
}

function outcome(outcomes, well) {
  const lines = outcomes.flatMap(({ method, error, message, done: carried, refused }) => [
    error ? note(`${method}: ${message || error}`) : null,
    carried ? el("p", {}, counted(carried, "partition")) : null,
    refused.map((one) => note(`${counted(one.count, "partition")} refused: ${one.message || one.error} (${one.such_as.join(", ")}${one.count > one.such_as.length ? ", ..." : ""})`)),
  ]);
  return [well && !outcomes.some((one) => one.error) ? el("p", { class: "well-done" }, well) : null, lines];
}

// --- what is offered ---------------------------------------------------------------------------------------

export function clusterActs(cluster) {
  const { maintenance, paused } = cluster.maintenance;
  return offers("Changes",
    maintenance
      ? offer("leave maintenance", "Leave maintenance", "Suspended work starts at once.", () => ({ kind: "maintenance", entered: false }))
      : offer("enter maintenance", "Enter maintenance", "Of its automatic work, the controller keeps only clean elections after failures.", () => ({ kind: "maintenance", entered: true })),
    paused
      ? offer("resume", "Resume the controller", "Suspended work starts at once.", () => ({ kind: "pause", paused: false }))
      : offer("pause", "Pause the controller", "Partitions that lose their leader will stay without one.", () => ({ kind: "pause", paused: true })),
    offer("elect preferred leaders", "Elect the preferred leaders of all partitions", "Every partition whose preferred replica is alive and in sync is led by it.", () => ({ kind: "elect" })));
}

export function brokerActs(id, broker) {
  const drained = broker?.drained;
  return offers("Changes",
    broker === undefined || broker.gone ? null : drained
      ? offer("undrain", `Allow leaderships on broker ${id} again`, "They return to it by automatic rebalancing, or by an election.", () => ({ kind: "drain", broker: id, drained: false }))
      : offer("drain", `Drain broker ${id}`, "It goes on following, and leads only partitions that no other broker can lead.", () => ({ kind: "drain", broker: id, drained: true })),
    offer("move everything off it", `Move all replicas off broker ${id}`, "For good: it is drained, and its replicas go to other brokers, racks kept. At most 1,000 partitions at a time: do it again to go on.",
      async () => {
        const { moves } = await ask("vacate", { broker: id });
        if (!moves.length) throw Object.assign(new Error("Nothing is left on it."), { status: 400 });
        return { kind: "move", moves, drain: broker === undefined || broker.gone || drained ? null : id };
      }));
}

export function topicActs(topic) {
  return offers("Changes",
    offer("elect preferred leaders", `Elect the preferred leaders of ${topic}`, "Every partition of it whose preferred replica is alive and in sync is led by that.", () => ({ kind: "elect", topic })));
}

export function partitionActs(topic, row) {
  const { partition } = row, name = `${topic}-${partition}`;
  const moving = row.adding.length || row.removing.length;
  return offers("Changes",
    row.leader === row.replicas[0] ? null
      : offer("elect its preferred leader", `Elect the preferred leader of ${name}`, `Broker ${row.replicas[0]} is to lead it.`, () => ({ kind: "elect", partitions: [{ topic, partition }] })),
    offer("move", `Move ${name}`, "Replicas that are new are copied first; then those that are left out are deleted.",
      ({ replicas }) => ({ kind: "move", moves: [{ topic, partition, replicas: ids(replicas) }] }),
      [{ name: "replicas", label: "replicas", value: row.replicas.filter((id) => !row.removing.includes(id)).join(","), hint: "preferred leader first" }]),
    moving ? offer("cancel its reassignment", `Cancel the reassignment of ${name}`, "It gets its old replicas back.", () => ({ kind: "move", moves: [{ topic, partition, replicas: null }] })) : null);
}

/** Raises for what is no list of ids. */
function ids(text) {
  const found = text.split(",").map((part) => part.trim());
  if (!found.every((part) => /^\d{1,10}$/.test(part))) throw Object.assign(new Error("replicas: must be broker ids, as 1,2,3"), { status: 400 });
  return found.map(Number);
}
