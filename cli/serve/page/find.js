// Find as you type: the best passages of the chosen document, or of all.

import * as api from "./api.js";
import { byId, el, marked, say, walkable } from "./dom.js";

const PAUSE = 150; // milliseconds without a key before it is searched
const LONGER = 500; // the same before the strip shows it
const MOST = 20;

export class Find {
  // `onOpen(place)` is called with what was chosen; `onQuery(text)` with what the strip shall show.
  constructor(onOpen, onQuery) {
    this.onOpen = onOpen;
    this.onQuery = onQuery;
    this.input = byId("query");
    this.list = byId("hits");
    this.document = null;
    this.timer = this.later = 0;
    this.finding = null;
    walkable(this.list);
    this.input.addEventListener("input", () => this.#typed());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.list.querySelector("button")?.focus();
      }
    });
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      this.list.querySelector("button")?.click();
    });
    this.list.addEventListener("keydown", (event) => {
      const first = this.list.querySelector("button") === document.activeElement;
      if (event.key === "ArrowUp" && first) this.input.focus();
    });
  }

  // Another document is searched from now on.
  choose(document) {
    this.document = document;
    this.clear();
  }

  clear() {
    this.input.value = "";
    this.#stop();
    this.#hide();
  }

  close() {
    if (this.list.hidden) return false;
    this.#hide();
    this.input.focus();
    return true;
  }

  #hide() {
    this.list.hidden = true;
    this.list.replaceChildren();
  }

  #stop() {
    clearTimeout(this.timer);
    clearTimeout(this.later);
    this.finding?.abort();
  }

  #typed() {
    this.#stop();
    const query = this.input.value.trim();
    if (!query) {
      this.#hide();
      this.onQuery("");
      return;
    }
    this.timer = setTimeout(() => this.#find(query), PAUSE);
    this.later = setTimeout(() => this.onQuery(query), LONGER);
  }

  async #find(query) {
    const finding = (this.finding = new AbortController());
    this.list.setAttribute("aria-busy", "true");
    try {
      const told = await api.find({ document: this.document, query, k: MOST }, finding.signal);
      if (finding === this.finding) this.#show(told.passages);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
    } finally {
      if (finding === this.finding) this.list.removeAttribute("aria-busy");
    }
  }

  #show(passages) {
    this.list.hidden = false;
    const items = passages.map((passage) => el("li", {}, this.#item(passage)));
    this.list.replaceChildren(...(items.length ? items : [el("li", { class: "hint" }, "Nothing")]));
    say(passages.length ? `${passages.length} found` : "Nothing found");
  }

  #item(passage) {
    const { match } = passage;
    const place = { ...passage, start: match.start, end: match.end, marks: match.words };
    return el(
      "button",
      { type: "button", class: "item", onclick: () => this.onOpen(place) },
      el("span", { class: "cite" }, `${passage.source}:${match.place}`),
      el("span", {}, ...marked(match.text, inCharacters(match))),
    );
  }
}

// The marks of a match in characters; none where its bytes are not UTF-8, which they are seldom.
function inCharacters({ start, end, text, words }) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length !== end - start) return [];
  const before = (byte) => Array.from(new TextDecoder().decode(bytes.subarray(0, byte - start))).length;
  return words.map(([a, b]) => [before(a), before(b)]);
}
