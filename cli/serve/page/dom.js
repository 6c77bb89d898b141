// Elements. Whatever comes from a document or a server becomes text, and never markup.

export const byId = (id) => document.getElementById(id);

// An element: attributes and `on...` listeners of `given`, and children, of which strings are text.
export function el(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// The same for SVG.
export function drawn(name, given = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Text with stretches in <mark>: [start, end) in characters as Python counts them.
export function marked(text, spans) {
  const characters = Array.from(text);
  const parts = [];
  let place = 0;
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    const from = Math.max(start, place);
    if (from >= end) continue;
    parts.push(characters.slice(place, from).join(""));
    parts.push(el("mark", {}, characters.slice(from, end).join("")));
    place = end;
  }
  parts.push(characters.slice(place).join(""));
  return parts.filter((part) => part !== "");
}

// Arrow keys, Home and End go through the buttons of a list.
export function walkable(list, among = "button.item") {
  list.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll(among)];
    const now = items.indexOf(document.activeElement);
    const next = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next === undefined || now < 0) return;
    event.preventDefault();
    items[Math.max(0, Math.min(items.length - 1, next))].focus();
  });
}

export const count = (number) => Number(number).toLocaleString("en");

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

// Bytes as people say them.
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  for (; bytes >= 999.95 && unit < units.length - 1; unit++) bytes /= 1000;
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

// Seconds as people say them.
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// Says something to everybody, also to those who do not look.
export function say(text, problem = false) {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("problem", problem);
}
