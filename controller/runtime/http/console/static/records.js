// Records of the state-change log as rows.

import { el, link, table } from "./dom.js";

/** What happened, in words. */
export function what(record) {
  const parts = [record.kind];
  if (record.replica !== undefined) parts.push(`broker ${record.replica}`);
  if (record.from !== undefined && record.to !== undefined) parts.push(`${record.from} → ${record.to}`);
  else if (record.to !== undefined) parts.push(String(record.to));
  if (record.kind === "leader" && record.isr) parts.push(`in sync ${record.isr.join(", ")}`);
  if (record.error) parts.push(record.error);
  return parts.join("  ");
}

function subject(record) {
  if (record.topic === undefined) return record.subject ?? "";
  if (record.partition === undefined) return link(["topic", record.topic], {}, record.topic);
  return link(["topic", record.topic, record.partition], {}, `${record.topic}-${record.partition}`);
}

const COLUMNS = [
  { title: "time (UTC)", class: "time", cell: (r) => el("time", { datetime: r.ts, title: r.ts }, r.ts.slice(11, 23)) },
  { title: "what", class: "what", cell: (r) => what(r) },
  { title: "of", class: "subject", cell: subject },
  { title: "why", class: "quiet", cell: (r) => [r.reason, r.principal].filter(Boolean).join(", ") },
  { title: "event", class: "quiet narrow", cell: (r) => `${r.controller_epoch}/${r.event_id} ${r.cause ?? ""}` },
];

export function recordTable(records, caption = "Changes", short = false) {
  return table(caption, short ? COLUMNS.slice(0, 4) : COLUMNS, records, "This controller has recorded nothing of it.");
}
