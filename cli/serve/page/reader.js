// The text of a document, opened at a place and read on from there, under its strip.

import * as api from "./api.js";
import { byId, el, marked, say } from "./dom.js";
import { Strip } from "./strip.js";

const SIDE = 4000; // bytes that are fetched on each side of a place
const LABEL = 20; // characters of a place that has a line of its own; a longer one wraps
const NEAR = 300; // pixels from an end at which more is fetched
const PROSE = /\.(txt|text|md|rst|html?|xhtml|epub|pdf|docx?|docm|odt|ott|rtf|pptx?|odp|eml|msg|mbox)$/i;

export class Reader {
  constructor() {
    this.name = null;
    this.sources = [];
    this.text = byId("text");
    this.lines = []; // {line, row}, in order
    this.end = 0;
    this.size = 0;
    this.fetching = null; // what is being opened
    this.more = false; // whether more is on its way
    this.opener = null;
    this.query = "";
    this.strip = new Strip((source, byte) => this.open({ source, start: byte, end: byte }, true));
    this.text.addEventListener("scroll", () => this.#scrolled());
    byId("close-reader").addEventListener("click", () => this.close());
  }

  // A document at its beginning; nothing happens where it is there already.
  async choose(document) {
    if (this.name === document.name) return;
    this.name = document.name;
    this.sources = document.sources;
    byId("reading-name").textContent = document.name;
    byId("query").placeholder = `Find in ${document.name}`;
    this.strip.number([]);
    this.strip.show({ bins: [], sources: [], total: 0 });
    this.score("");
    await this.open({ source: 0, start: 0, end: 0 }, true);
  }

  // Nothing is chosen any more.
  forget() {
    this.name = null;
    this.sources = [];
    byId("reading-name").textContent = "";
    byId("query").placeholder = "Find";
    this.strip.show({ bins: [], sources: [], total: 0 });
    this.text.replaceChildren();
  }

  // Shows where the scores of a query lie; without one, only what the document is made of.
  async score(query) {
    const name = this.name;
    this.query = query;
    try {
      const told = await api.strip(name, query, Strip.bins);
      if (this.name === name && this.query === query) this.strip.show(told);
    } catch (error) {
      if (this.name === name && this.query === query) say(error.message, true);
    }
  }

  // Opens a place: its bytes are set off, and the answer in them is marked.
  //
  // `place`: {source, start, end, marks, chars}, where marks are pairs of bytes of the source, and
  // chars {byte, spans} pairs of characters of the text that begins at a byte.
  async open(place, keepsFocus = false) {
    this.fetching?.abort();
    const fetching = (this.fetching = new AbortController());
    const { source, start, end } = place;
    const values = [["source", source], ["start", start], ["end", end], ["before", SIDE], ["after", SIDE]];
    for (const [a, b] of place.marks ?? []) values.push(["mark", `${a}-${b}`]);
    for (const [a, b] of place.chars?.spans ?? []) values.push(["chars", `${place.chars.byte}:${a}-${b}`]);
    let told;
    try {
      told = await api.text(this.name, values, fetching.signal);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
      return;
    }
    if (fetching !== this.fetching) return;
    this.place = place;
    this.source = source;
    this.size = told.size;
    this.lines = [];
    this.text.replaceChildren();
    this.text.classList.toggle("prose", PROSE.test(told.name));
    if (this.sources.length > 1) this.text.append(el("h3", { class: "source" }, told.name));
    this.#add(told, false);
    this.#reveal();
    if (!keepsFocus) this.#focus();
    this.#seen();
  }

  // Lays the text over the page, where there is no room for it beside the questions.
  lay(opener = document.activeElement) {
    if (!document.body.classList.contains("reading")) this.opener = opener;
    document.body.classList.add("reading");
  }

  close() {
    if (!document.body.classList.contains("reading")) return false;
    document.body.classList.remove("reading");
    this.opener?.focus();
    return true;
  }

  get lies() {
    return getComputedStyle(byId("reader")).position === "fixed";
  }

  #focus() {
    if (!this.lies || document.body.classList.contains("reading")) this.text.focus({ preventScroll: true });
  }

  #add(told, before) {
    const rows = told.lines.map((line, i) => {
      const after = told.lines[i + 1]?.start ?? told.end;
      return { line, row: this.#row(line, after) };
    });
    const first = this.lines[0];
    if (before && first) {
      const height = this.text.scrollHeight;
      for (const { row } of rows) first.row.before(row);
      this.text.scrollTop += this.text.scrollHeight - height;
      this.lines.unshift(...rows);
    } else {
      this.text.append(...rows.map(({ row }) => row));
      this.lines.push(...rows);
    }
    if (!before || !first) this.end = told.end;
    this.#placed();
  }

  #row(line, after) {
    const { start, end } = this.place;
    const inside = line.start < end ? after > start : line.start <= start && start < after;
    const number = el("span", { class: "place" });
    const text = el("span", { class: "line" }, ...marked(line.text, line.marks));
    const kind = inside ? (end > start ? "row inside" : "row here") : "row";
    return el("div", { class: kind, "data-start": line.start }, number, text);
  }

  // Each row says where it is, if the row before is elsewhere. The column fits the longest.
  #placed() {
    let longest = 0;
    this.lines.forEach(({ line, row }, i) => {
      const before = this.lines[i - 1]?.line;
      const told = line.begins && line.place !== before?.place ? line.place : "";
      row.firstChild.textContent = told;
      longest = Math.max(longest, told.length);
    });
    this.text.style.setProperty("--places", `${Math.min(longest, LABEL) * 0.45}rem`);
  }

  #reveal() {
    const row = this.text.querySelector(".inside mark, .inside, .here");
    if (!row) return;
    const box = row.getBoundingClientRect();
    const own = this.text.getBoundingClientRect();
    this.text.scrollTop += box.top - own.top - own.height / 3;
  }

  async #scrolled() {
    this.#seen();
    const { scrollTop, clientHeight, scrollHeight } = this.text;
    const begin = this.lines[0]?.line.start ?? 0;
    if (this.more || !this.lines.length) return;
    if (scrollHeight - scrollTop - clientHeight < NEAR && this.end < this.size) {
      await this.#fetch({ start: this.end, end: this.end, before: 0, after: 2 * SIDE }, false);
    } else if (scrollTop < NEAR && begin > 0) {
      await this.#fetch({ start: begin, end: begin, before: 2 * SIDE, after: 0 }, true);
    }
  }

  async #fetch(values, before) {
    const fetching = this.fetching;
    this.more = true;
    try {
      const told = await api.text(this.name, { source: this.source, ...values }, fetching.signal);
      if (fetching === this.fetching) this.#add(told, before);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message, true);
    } finally {
      this.more = false;
    }
  }

  // Tells the strip which bytes are on the screen.
  #seen() {
    const own = this.text.getBoundingClientRect();
    const seen = this.lines.filter(({ row }) => {
      const box = row.getBoundingClientRect();
      return box.bottom > own.top && box.top < own.bottom;
    });
    if (!seen.length) return;
    const last = this.lines[this.lines.indexOf(seen.at(-1)) + 1]?.line.start ?? this.end;
    this.strip.see(this.source, seen[0].line.start, last);
  }
}
