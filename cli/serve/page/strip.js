// The strip: scores over a whole document, where the text is open, and the numbered passages.

import { byId, drawn } from "./dom.js";

const BINS = 200;
const STEP = 1000; // of the strip's own width, in which all places on it are given
const PEAK = 0.5;

export class Strip {
  // `onGo(source, byte)` is called when somebody chooses a place.
  constructor(onGo) {
    this.onGo = onGo;
    this.bins = [];
    this.parts = [];
    this.total = 0;
    this.at = 0;
    this.view = [0, 0];
    this.numbers = [];
    this.box = byId("strip");
    this.told = byId("strip-told");
    this.drawing = drawn("svg", {
      viewBox: `0 0 ${STEP} 100`,
      preserveAspectRatio: "none",
      role: "slider",
      tabindex: 0,
      "aria-label": "Place in the document",
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    });
    this.box.append(this.drawing);
    this.drawing.addEventListener("click", (event) => this.#clicked(event));
    this.drawing.addEventListener("pointermove", (event) => this.#tell(this.#byteAt(event)));
    this.drawing.addEventListener("pointerleave", () => this.#tell(null));
    this.drawing.addEventListener("keydown", (event) => this.#keyed(event));
  }

  static get bins() {
    return BINS;
  }

  // Shows what the server says of a document: {bins, sources, total}.
  show({ bins, sources, total }) {
    this.bins = bins;
    this.parts = sources;
    this.total = total;
    this.box.hidden = total === 0;
    this.#draw();
  }

  // The part of a source that is open, and the numbered places: [{number, source, start}].
  see(source, start, end) {
    this.view = [this.#byte(source, start), this.#byte(source, end)];
    this.at = this.view[0];
    this.#draw();
  }

  number(places) {
    this.numbers = places;
    this.#draw();
  }

  #byte(source, byte) {
    return (this.parts[source]?.from ?? 0) + byte;
  }

  #x(byte) {
    return this.total ? (byte / this.total) * STEP : 0;
  }

  #draw() {
    const wide = STEP / Math.max(1, this.bins.length);
    const rises = this.bins.map((score, i) => {
      const height = score === null ? 0 : 4 + 92 * score;
      return `M${i * wide} 100v${-height}h${wide}V100z`;
    });
    const borders = this.parts.length > 1 && this.parts.length <= 100 ? this.parts.slice(1) : [];
    const [from, to] = this.view.map((byte) => this.#x(byte));
    const now = Math.round((100 * this.at) / Math.max(1, this.total));
    this.drawing.setAttribute("aria-valuenow", now);
    this.drawing.setAttribute("aria-valuetext", this.#where(this.at));
    const numbers = this.numbers.map((at) => this.#x(this.#byte(at.source, at.start)));
    this.drawing.replaceChildren(
      drawn("path", { class: "scores", d: rises.join("") }),
      drawn("path", { class: "borders", d: borders.map((p) => `M${this.#x(p.from)} 0V100`).join("") }),
      drawn("path", { class: "numbers", d: numbers.map((x) => `M${x} 0V22`).join("") }),
      drawn("rect", { class: "view", x: from, y: 0, width: Math.max(4, to - from), height: 100 }),
    );
  }

  #where(byte) {
    const part = this.parts.find((one) => byte < one.to) ?? this.parts.at(-1);
    if (!part) return "";
    const score = this.bins[Math.floor((byte * this.bins.length) / Math.max(1, this.total))];
    const share = `${Math.round((100 * byte) / Math.max(1, this.total))}%`;
    const name = this.parts.length > 1 ? `, ${part.name}` : "";
    return `${share}${name}${score === null || score === undefined ? "" : `, score ${score.toFixed(2)}`}`;
  }

  #tell(byte) {
    this.told.textContent = byte === null ? "" : this.#where(byte);
  }

  #byteAt(event) {
    const box = this.drawing.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    return Math.min(this.total - 1, Math.floor(share * this.total));
  }

  #go(byte) {
    this.at = Math.max(0, Math.min(this.total - 1, byte));
    const part = this.parts.find((one) => this.at < one.to);
    if (part) this.onGo(part.source, this.at - part.from);
    this.#tell(this.at);
  }

  #clicked(event) {
    if (this.total) this.#go(this.#byteAt(event));
  }

  #keyed(event) {
    const bin = this.total / Math.max(1, this.bins.length || BINS);
    const now = Math.floor(this.at / bin + 1e-6);
    const next = {
      ArrowLeft: () => now - 1,
      ArrowRight: () => now + 1,
      Home: () => 0,
      End: () => Math.ceil(this.total / bin) - 1,
      PageUp: () => this.#peak(now, -1),
      PageDown: () => this.#peak(now, 1),
    }[event.key];
    if (!next || !this.total) return;
    event.preventDefault();
    this.#go(Math.ceil(Math.max(0, next()) * bin));
  }

  // The nearest bin before or after one that is high, and higher than its neighbours.
  #peak(now, step) {
    for (let i = now + step; i >= 0 && i < this.bins.length; i += step) {
      const [left, own, right] = [this.bins[i - 1] ?? 0, this.bins[i] ?? 0, this.bins[i + 1] ?? 0];
      if (own >= PEAK && own > left && own >= right) return i;
    }
    return now;
  }
}
