// What the page asks of its server. The token, where there is one, stays in this tab.

import { byId } from "./dom.js";

const KEY = "longctx-token";
let waiting = null; // the question for the token, while it is open

export class Failure extends Error {
  constructor(message, code = null, status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

// Asks for the token, once for everybody who wants it.
function askToken(wasWrong) {
  waiting ??= new Promise((given, refused) => {
    const dialog = byId("token-dialog");
    byId("token-wrong").hidden = !wasWrong;
    byId("token").value = "";
    dialog.returnValue = "";
    byId("token-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, byId("token").value.trim());
      dialog.close("given");
    };
    dialog.onclose = () => {
      waiting = null;
      if (dialog.returnValue === "given") given();
      else refused(new Failure("The server wants its token.", "token", 401));
    };
    dialog.showModal();
  });
  return waiting;
}

async function failure(response) {
  let told = null;
  try {
    told = (await response.json()).error;
  } catch {
    // Not of our own making: the status has to do.
  }
  const wait = response.headers.get("Retry-After");
  const busy = response.status === 429 ? `The server is busy.${wait ? ` Try again in ${wait} s.` : ""}` : null;
  const message = busy ?? told?.message ?? `The server answers with status ${response.status}.`;
  return new Failure(message, told?.code ?? null, response.status);
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = new Headers(options.headers);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer.");
  }
  if (response.status === 401) {
    // Another request may have been given a better one meanwhile.
    if (sessionStorage.getItem(KEY) === token) await askToken(token !== null);
    return request(path, options);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

function sent(body, signal) {
  const headers = { "Content-Type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify(body), signal };
}

async function* events(path, options) {
  const response = await request(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const told = { event: "message", data: "" };
        for (const line of part.split(/\r?\n/)) {
          if (line.startsWith("event:")) told.event = line.slice(6).trim();
          if (line.startsWith("data:")) told.data += line.slice(5).trim();
        }
        if (!told.data) continue;
        const data = JSON.parse(told.data);
        if (told.event === "error") throw new Failure(data.message, data.code);
        yield { event: told.event, data };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const place = (name) => `/api/documents/${encodeURIComponent(name)}`;

async function json(path, options) {
  return (await request(path, options)).json();
}

export const documents = () => json("/api/documents");
export const remove = (name) => request(place(name), { method: "DELETE" });
export const ask = (body, signal) => events("/api/ask", sent(body, signal));
export const find = (body, signal) => json("/api/find", sent(body, signal));

export function text(name, values, signal) {
  return json(`${place(name)}/text?${new URLSearchParams(values)}`, { signal });
}

export function strip(name, query, bins, signal) {
  return json(`${place(name)}/strip?${new URLSearchParams({ q: query, bins })}`, { signal });
}

export function ingest(file, replace, signal) {
  const values = new URLSearchParams(replace ? { name: file.name, replace: 1 } : { name: file.name });
  const headers = { "Content-Type": "application/octet-stream" };
  return events(`/api/ingest?${values}`, { method: "POST", headers, body: file, signal });
}
