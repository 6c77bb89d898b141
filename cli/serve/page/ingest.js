// Files that are dropped on the page, or chosen: read one after another, with what is left to do.

import * as api from "./api.js";
import { confirmed } from "./documents.js";
import { byId, duration, el, say, size } from "./dom.js";

export class Ingest {
  // `onDone(document)` is called with the name of what was read.
  constructor(onDone) {
    this.onDone = onDone;
    this.list = byId("readings");
    this.waiting = [];
    this.busy = false;
    this.depth = 0; // of elements that a dragged file is over
    byId("files").addEventListener("change", (event) => {
      this.add([...event.target.files]);
      event.target.value = "";
    });
    addEventListener("dragenter", (event) => this.#over(event, 1));
    addEventListener("dragleave", (event) => this.#over(event, -1));
    addEventListener("dragover", (event) => {
      if (brings(event)) event.preventDefault();
    });
    addEventListener("drop", (event) => {
      if (!brings(event)) return;
      event.preventDefault();
      this.depth = 0;
      byId("drop").hidden = true;
      this.add([...event.dataTransfer.files]);
    });
  }

  #over(event, step) {
    if (!brings(event)) return;
    event.preventDefault();
    this.depth += step;
    byId("drop").hidden = this.depth <= 0;
  }

  // Takes files; each begins when those before it are done.
  add(files) {
    for (const file of files) {
      const shown = new Reading(file, () => this.#drop(shown));
      this.list.append(shown.box);
      this.waiting.push(shown);
    }
    this.#next();
  }

  #drop(shown) {
    shown.stop();
    this.waiting = this.waiting.filter((one) => one !== shown);
    shown.box.remove();
  }

  async #next() {
    if (this.busy) return;
    this.busy = true;
    while (this.waiting.length) await this.#read(this.waiting.shift());
    this.busy = false;
  }

  async #read(shown, replace = false) {
    try {
      const name = await shown.read(replace);
      shown.box.remove();
      say(`${shown.file.name} was read.`);
      await this.onDone(name);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.code === "exists" && !replace) {
        if (await confirmed(`${error.message} Read ${shown.file.name} in its place?`, "Replace")) {
          await this.#read(shown, true);
        } else {
          shown.box.remove();
        }
        return;
      }
      shown.fail(error.message);
    }
  }
}

const brings = (event) => event.dataTransfer?.types.includes("Files") ?? false;

// One file on its way.
class Reading {
  constructor(file, onStop) {
    this.file = file;
    this.controller = new AbortController();
    this.bar = el("progress", { max: 1, value: 0, "aria-label": `Reading ${file.name}` });
    this.told = el("span", { class: "hint" }, "waiting");
    const label = `Stop reading ${file.name}`;
    const stop = el("button", { type: "button", class: "plain remove", "aria-label": label, onclick: onStop }, "×");
    this.box = el("li", { class: "reading-file" }, el("span", { class: "name" }, file.name), stop, this.bar, this.told);
  }

  stop() {
    this.controller.abort();
  }

  async read(replace) {
    this.told.textContent = `sending ${size(this.file.size)}`;
    let name = null;
    for await (const { event, data } of api.ingest(this.file, replace, this.controller.signal)) {
      if (event === "progress") this.#show(data);
      if (event === "done") name = data.document;
    }
    if (name === null) throw new api.Failure("The reading broke off.");
    return name;
  }

  #show({ done, total, left_s: left, phase = "reading" }) {
    if (total) this.bar.value = Math.min(1, done / total);
    else this.bar.removeAttribute("value");
    const share = total ? `${Math.floor((100 * Math.min(done, total)) / total)}%` : "";
    const read = total ? `${size(Math.min(done, total))} of ${size(total)}` : size(done);
    const time = left === null ? "" : `about ${duration(left)} left`;
    this.told.textContent = `${phase}: ${[share, read, time].filter(Boolean).join(", ")}`;
  }

  fail(message) {
    this.bar.remove();
    this.told.textContent = message;
    this.told.className = "problem";
    this.told.setAttribute("role", "alert");
  }
}
