// The page: documents at the left, questions in the middle, the text at the right.

import { Ask, told } from "./ask.js";
import { Documents } from "./documents.js";
import { byId, say } from "./dom.js";
import { Find } from "./find.js";
import { Ingest } from "./ingest.js";
import { Reader } from "./reader.js";

const reader = new Reader();
const find = new Find(open, (query) => reader.score(query));
const ask = new Ask(open, answered);
const documents = new Documents(chosen);
new Ingest((name) => {
  if (reader.name === name) reader.forget(); // it may be another one now
  return documents.load(name);
});

// Opens a place: {document, source (a name), start, end, marks, chars}.
async function open(place) {
  const document = documents.named(place.document);
  if (!document) return;
  if (reader.lies) reader.lay();
  if (reader.name !== document.name) await reader.choose(document);
  const source = Math.max(0, document.sources.indexOf(place.source));
  await reader.open({ ...place, source });
}

async function answered(question, found, name) {
  told(found);
  const shown = name || found[0]?.document;
  const document = documents.named(shown);
  if (!document) return;
  if (reader.name !== document.name && name === (documents.name ?? "")) await reader.choose(document);
  if (reader.name !== document.name) return;
  const own = found.filter((place) => place.document === document.name);
  reader.strip.number(
    own.map((place) => ({ source: Math.max(0, document.sources.indexOf(place.source)), start: place.start })),
  );
  await reader.score(question);
}

// A document, null for all, or undefined where there is none.
function chosen(document) {
  byId("open-documents").setAttribute("aria-expanded", "false");
  globalThis.document.body.classList.remove("choosing");
  const name = document === undefined ? null : (document?.name ?? "");
  ask.choose(name);
  find.choose(name);
  const welcome = {
    none: "No documents yet. Drop a file on this page, and ask about it.",
    all: "Ask about all documents. What answers is shown with where it stands.",
  };
  byId("welcome").textContent =
    name === null ? welcome.none : name === "" ? welcome.all : `Ask about ${name}. What answers is shown with where it stands.`;
  if (document) reader.choose(document);
  else if (document === undefined || !documents.named(reader.name)) reader.forget();
}

// The place that the address names: #document=NAME&source=FILE&start=BYTE&end=BYTE.
async function openAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  const document = documents.named(told.get("document"));
  if (!document) return;
  if (documents.name !== document.name) documents.choose(document);
  const [start, end] = ["start", "end"].map((key) => Number.parseInt(told.get(key) ?? "", 10));
  if (start >= 0) await open({ document: document.name, source: told.get("source"), start, end: Math.max(start, end || 0) });
}

function close() {
  return find.close() || reader.close() || closeDocuments();
}

function closeDocuments() {
  const { classList } = document.body;
  const was = classList.contains("choosing");
  classList.remove("choosing");
  byId("open-documents").setAttribute("aria-expanded", "false");
  if (was) byId("open-documents").focus();
  return was;
}

function keyed(event) {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (close() || ask.stop()) event.preventDefault();
    return;
  }
  const writes = event.target.closest("input, textarea, select") !== null;
  if (writes || event.ctrlKey || event.metaKey || event.altKey) return;
  const wanted = { "/": () => byId("question").focus(), f: findHere, "?": () => byId("keys-dialog").showModal() }[event.key];
  if (!wanted) return;
  event.preventDefault();
  wanted();
}

function findHere() {
  if (reader.lies) reader.lay();
  byId("query").focus();
}

addEventListener("keydown", keyed);
addEventListener("hashchange", openAddress);
byId("open-keys").addEventListener("click", () => byId("keys-dialog").showModal());
byId("open-reader").addEventListener("click", () => {
  reader.lay();
  byId("text").focus();
});
byId("open-documents").addEventListener("click", () => {
  const open = document.body.classList.toggle("choosing");
  byId("open-documents").setAttribute("aria-expanded", String(open));
  if (open) (byId("document-list").querySelector("[aria-current]") ?? byId("files")).focus();
});
for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}

try {
  await documents.load();
  await openAddress();
} catch (error) {
  say(error.message, true);
}
