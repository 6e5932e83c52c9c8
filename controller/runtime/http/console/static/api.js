// What the pages ask of the controller. A token, if one is needed, stays in this page's memory.

let token = "";

export function login(given) {
  token = given.trim();
}

function headers() {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export class Refused extends Error {
  constructor(status, name, message, more = {}) {
    super(message);
    this.status = status;
    this.error = name;
    this.more = more;
  }
}

/** The answer of /ui/api/PATH. Throws Refused, and TypeError where nobody answers. */
export async function ask(path, query = {}, signal = undefined) {
  const wanted = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return told(await fetch(`/ui/api/${path}?${new URLSearchParams(wanted)}`, { headers: headers(), signal, cache: "no-store" }));
}

/** The answer to a change, sent with a token that is fresh: only a page of this controller can have read it. */
export async function send(path, body) {
  const session = await ask("session");
  if (!session.may_change) throw new Refused(403, "CLUSTER_AUTHORIZATION_FAILED", session.why);
  return told(await fetch(`/ui/api/${path}`, {
    method: "POST", cache: "no-store", body: JSON.stringify(body),
    headers: { ...headers(), "Content-Type": "application/json", "Console-Token": session.token },
  }));
}

async function told(answer) {
  if (answer.ok) return answer.json();
  const text = await answer.text();
  let error = { error: answer.statusText, message: text };
  try {
    error = JSON.parse(text);
  } catch {
    // Not of the API: a refusal in plain text.
  }
  throw new Refused(answer.status, error.error, error.message, error);
}

const RETRY_FIRST_MS = 500, RETRY_MAX_MS = 10000;

/** Follow the events for ever: `heard(name, data)`, `line(up)` when the line comes and goes. */
export async function follow(heard, line) {
  let wait = RETRY_FIRST_MS;
  for (;;) {
    try {
      const answer = await fetch("/ui/api/events", { headers: headers(), cache: "no-store" });
      if (!answer.ok) throw new Refused(answer.status, "", "");
      line(true);
      wait = RETRY_FIRST_MS;
      await read(answer.body, heard);
    } catch {
      wait = Math.min(wait * 2, RETRY_MAX_MS);
    }
    line(false);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function read(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const fields = Object.fromEntries(message.split("\n").map((text) => [text.slice(0, text.indexOf(":")), text.slice(text.indexOf(":") + 1).trim()]));
      if (fields.event) heard(fields.event, JSON.parse(fields.data));
    }
  }
}
