// Elements, made so that no text of the cluster can become markup: children that are no nodes become text.

const READ_ALOUD = new Set(["aria-label", "title"]);

/** A text with its control and direction characters written out: a name that has them must not rearrange what is around it. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** An element. `on...` attributes are listeners; null and false leave an attribute or child out. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : READ_ALOUD.has(key) ? visible(value) : String(value));
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(parent, child);
    else if (child instanceof Node) parent.append(child);
    else if (child !== null && child !== undefined && child !== false) parent.append(document.createTextNode(visible(child)));
  }
}

/** Put new children in place of the old ones. What has the focus keeps it, by its `data-key`. */
export function show(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren();
  add(parent, children);
  if (key === undefined) return;
  for (const found of parent.querySelectorAll("[data-key]")) {
    if (found.dataset.key === key) return found.focus({ preventScroll: true });
  }
}

const grouping = new Intl.NumberFormat("en-US");

export function number(value) {
  return grouping.format(value);
}

/** `1 partition`, `2 partitions`. */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** A link to a page of ours. Parts are encoded. */
export function link(parts, attributes, ...children) {
  return el("a", { href: address(...parts), ...attributes }, ...children);
}

export function address(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

export function card(title, attributes, ...children) {
  const heading = typeof title === "string" ? el("h2", {}, title) : title;
  return el("section", { ...attributes, class: `card ${attributes.class ?? ""}` }, heading, ...children);
}

/** `columns`: {title, cell(row), class}. */
export function table(caption, columns, rows, empty = "none") {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, columns.map((c) => el("th", { scope: "col", class: c.class }, c.title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((c) => el("td", { class: c.class }, c.cell(row))))))));
}

/** A command to type, with a button that copies it. */
export function command(text) {
  const button = el("button", {
    class: "copy", type: "button", "aria-label": `copy: ${text}`, "data-key": `copy ${text}`,
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        button.textContent = "not copied";
      }
    },
  }, "copy");
  return el("span", { class: "command" }, el("code", {}, text), navigator.clipboard ? button : null);
}
