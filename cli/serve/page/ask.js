// Questions and their answers, as they are made.

import * as api from "./api.js";
import { parts, places } from "./cite.js";
import { byId, count, el, plural, say, walkable } from "./dom.js";

const BEFORE = 3; // exchanges that a question may go on from
const REFUSAL = /^not in the (text|document)\.?$/i; // nothing in it has a place
const VERDICT = {
  no: "The text seems not to say this.",
  unsure: "Perhaps the text does not say this: see the passages.",
};

export class Ask {
  // `onOpen(place)` when a passage is chosen, `onAnswer(question, places)` when there is an answer.
  constructor(onOpen, onAnswer) {
    this.onOpen = onOpen;
    this.onAnswer = onAnswer;
    this.document = null;
    this.past = []; // {document, question, answer}
    this.asking = null;
    this.box = byId("exchanges");
    this.question = byId("question");
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.question.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#ask();
      }
    });
    byId("stop").addEventListener("click", () => this.stop());
  }

  // The document that is asked from now on; empty: all.
  choose(document) {
    this.document = document;
    const named = document || "all documents";
    this.question.placeholder = document === null ? "Ask" : `Ask ${named}`;
    byId("send").disabled = document === null;
    this.#offer();
  }

  stop() {
    if (!this.asking) return false;
    this.asking.abort();
    return true;
  }

  #past() {
    return this.past.filter((one) => one.document === this.document).slice(-BEFORE);
  }

  #offer() {
    byId("go-on").hidden = this.#past().length === 0;
    if (byId("go-on").hidden) byId("before").checked = false;
  }

  async #ask() {
    const question = this.question.value.trim();
    if (!question || this.asking || this.document === null) return;
    const before = byId("before").checked ? this.#past().map(({ question, answer }) => ({ question, answer })) : [];
    const { document } = this;
    const shown = new Exchange(question, document, this.onOpen);
    byId("welcome").hidden = true;
    this.box.append(shown.box);
    shown.box.scrollIntoView({ block: "end" });
    this.question.value = "";
    this.#working(new AbortController());
    try {
      for await (const { event, data } of api.ask({ document, question, before }, this.asking.signal)) {
        if (event === "piece") shown.add(data.text);
        if (event === "answer") {
          const found = shown.end(data);
          this.past.push({ document, question, answer: data.answer });
          this.onAnswer(question, found, document);
        }
      }
      if (!shown.ended) throw new api.Failure("The answer broke off.");
    } catch (error) {
      shown.fail(error.name === "AbortError" ? "Stopped." : error.message);
      this.question.value ||= question;
    } finally {
      this.#working(null);
      this.#offer();
      shown.box.scrollIntoView({ block: "nearest" });
    }
  }

  #working(controller) {
    this.asking = controller;
    byId("send").hidden = controller !== null;
    byId("stop").hidden = controller === null;
    this.box.setAttribute("aria-busy", String(controller !== null));
  }
}

// One question with its answer on the page.
class Exchange {
  constructor(question, document, onOpen) {
    this.onOpen = onOpen;
    this.ended = false;
    this.answer = el("p", { class: "answer", "aria-live": "polite", "aria-busy": "true" });
    this.answer.append(el("span", { class: "waiting", "aria-label": "Reading" }));
    this.below = el("div", { class: "below" });
    this.box = el(
      "article",
      { class: "exchange" },
      el("h3", {}, question),
      el("p", { class: "hint" }, document || "all documents"),
      this.answer,
      this.below,
    );
  }

  add(text) {
    this.answer.querySelector(".waiting")?.remove();
    this.answer.append(text);
  }

  // The whole answer, with its marks; returns the places that they stand for.
  end(answer) {
    this.ended = true;
    const found = places(answer);
    const shown = parts(answer.answer, REFUSAL.test(answer.answer) ? [] : found).flatMap(({ text, numbers }) => {
      const bare = text.trimEnd();
      return [bare, ...numbers.map((n) => this.#mark(n, found[n - 1])), text.slice(bare.length)];
    });
    this.answer.replaceChildren(...shown);
    this.answer.removeAttribute("aria-busy");
    if (VERDICT[answer.found]) this.below.append(el("p", { class: "verdict" }, VERDICT[answer.found]));
    if (found.length) this.below.append(this.#list(found));
    this.below.append(el("p", { class: "hint" }, figures(answer)));
    return found;
  }

  fail(message) {
    this.answer.querySelector(".waiting")?.remove();
    this.answer.removeAttribute("aria-busy");
    this.below.append(el("p", { class: "problem", role: "alert" }, message));
  }

  #mark(number, place) {
    const label = `Passage ${number}, ${place.source}:${place.place}`;
    const open = () => this.onOpen(place);
    return el("button", { type: "button", class: "mark", "aria-label": label, onclick: open }, String(number));
  }

  #list(found) {
    const items = found.map((place, i) => {
      const open = () => this.onOpen(place);
      const item = el(
        "button",
        { type: "button", class: "item", onclick: open },
        el("span", { class: "number" }, String(i + 1)),
        el("span", { class: "cite" }, `${place.source}:${place.place}`),
        el("span", { class: "told" }, short(place.text)),
      );
      return el("li", {}, item);
    });
    const list = el("ol", { class: "passages", "aria-label": "Passages" }, ...items);
    walkable(list);
    return list;
  }
}

// A passage in a list: with its own lines, cut where it is long.
export function short(text) {
  const line = text.replace(/^\s*\n|\s+$/g, "");
  return line.length > 240 ? `${line.slice(0, 240).trimEnd()} …` : line;
}

function figures(answer) {
  const seconds = answer.timings.total_s.toFixed(1);
  const { gathered, document } = answer.tokens;
  const end = answer.stop === "interrupted" ? ", stopped early" : "";
  return `${seconds} s, ${count(gathered)} of ${plural(document, "token")} gathered${end}`;
}

// Says that an answer has come, to those who listen.
export function told(found) {
  say(found.length ? `Answered, with ${plural(found.length, "passage")}.` : "Answered.");
}
