// The documents at the left: choosing one, or all, and removing.

import * as api from "./api.js";
import { byId, el, plural, say, walkable } from "./dom.js";

const KEY = "longctx-document";
const ALL = "";

export class Documents {
  // `onChoose(document)` is called with what the server says of a document, or with null for all.
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.known = [];
    this.name = sessionStorage.getItem(KEY);
    this.list = byId("document-list");
    walkable(this.list);
  }

  named(name) {
    return this.known.find((document) => document.name === name) ?? null;
  }

  // Asks the server anew, and chooses: the one that is named, or was chosen, or the latest.
  async load(name = this.name) {
    this.known = await api.documents();
    const usable = this.known.filter((document) => document.status === "complete");
    const latest = [...usable].sort((a, b) => String(b.created).localeCompare(String(a.created)))[0];
    const chosen = name === ALL && usable.length > 1 ? null : (this.named(name) ?? latest);
    if (chosen === undefined) {
      this.name = null;
      this.#draw();
      this.onChoose(undefined);
    } else {
      this.choose(chosen);
    }
  }

  choose(document) {
    this.name = document ? document.name : ALL;
    sessionStorage.setItem(KEY, this.name);
    this.#draw();
    this.onChoose(document);
  }

  #draw() {
    const held = this.list.contains(document.activeElement);
    const items = this.known.map((one) => this.#item(one));
    const usable = this.known.filter((one) => one.status === "complete");
    if (usable.length > 1) items.unshift(el("li", {}, this.#all(usable)));
    this.list.replaceChildren(...items);
    if (held) this.list.querySelector("[aria-current]")?.focus();
  }

  #all(usable) {
    const tokens = usable.reduce((sum, one) => sum + one.tokens, 0);
    return el(
      "button",
      { type: "button", class: "item", "aria-current": this.name === ALL ? "true" : null, onclick: () => this.choose(null) },
      el("span", { class: "name" }, "All documents"),
      el("span", { class: "hint" }, plural(tokens, "token")),
    );
  }

  #item(one) {
    const complete = one.status === "complete";
    const files = one.sources.length > 1 ? `, ${plural(one.sources.length, "file")}` : "";
    const state = complete ? "" : `, ${one.status === "reading" ? "not finished" : one.status}`;
    const choose = el(
      "button",
      {
        type: "button",
        class: "item",
        disabled: !complete,
        "aria-current": this.name === one.name ? "true" : null,
        onclick: () => this.choose(one),
      },
      el("span", { class: "name" }, one.name),
      el("span", { class: "hint" }, `${plural(one.tokens, "token")}${files}${state}`),
    );
    const remove = el(
      "button",
      { type: "button", class: "plain remove", "aria-label": `Delete ${one.name}`, onclick: () => this.#remove(one) },
      "×",
    );
    return el("li", {}, choose, remove);
  }

  async #remove(one) {
    if (!(await confirmed(`Delete what was read of ${one.name}? The file itself stays.`, "Delete"))) return;
    try {
      await api.remove(one.name);
      say(`${one.name} was deleted.`);
      await this.load();
    } catch (error) {
      say(error.message, true);
    }
  }
}

// Asks before something is done that cannot be undone.
export function confirmed(text, yes) {
  const dialog = byId("confirm-dialog");
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  dialog.returnValue = "";
  return new Promise((done) => {
    byId("confirm-yes").onclick = () => dialog.close("yes");
    dialog.onclose = () => done(dialog.returnValue === "yes");
    dialog.showModal();
  });
}
