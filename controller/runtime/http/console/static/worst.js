// What may be wrong with partitions, worst first: the same names, signs and colours everywhere.

export const KINDS = [
  { field: "offline", wrong: "unavailable_partitions", name: "without a leader", short: "without a leader", sign: "✕", class: "offline" },
  { field: "under_min_isr", wrong: "under_min_isr_partitions", name: "below min.insync.replicas", short: "below min ISR", sign: "▼", class: "short" },
  { field: "under_replicated", wrong: "under_replicated_partitions", name: "with a replica out of sync", short: "out of sync", sign: "◐", class: "behind" },
];
export const WELL = { field: "", wrong: null, name: "well", sign: "", class: "well" };

/** The worst that is wrong with some counted partitions. */
export function worstOf(counts) {
  return KINDS.find((kind) => counts[kind.field] > 0) ?? WELL;
}

export function kindOf(wrong) {
  return KINDS.find((kind) => kind.wrong === wrong) ?? WELL;
}

/** In words: `12 partitions, 3 without a leader`. */
export function inWords(counts, counted) {
  const parts = KINDS.filter((kind) => counts[kind.field]).map((kind) => `${counts[kind.field]} ${kind.name}`);
  if (counts.moving) parts.push(`${counts.moving} being reassigned`);
  return [counted(counts.partitions, "partition"), ...(parts.length ? parts : ["well"])].join(", ");
}
