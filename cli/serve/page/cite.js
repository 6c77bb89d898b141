// What an answer is based on, numbered, and which numbers stand behind which of its sentences.

const MOST = 6; // places that are numbered
const ENOUGH = 0.6; // of a sentence's words that must be in a place
const STOP = new Set("a an and are as at be by for from in is it of on or that the to was were with".split(" "));

// The numbered places of an answer, best first: the sentence that answers, then passages.
//
// Each has document, source, place, start, end, text, and `marks` or `chars` for `Reader.open`.
export function places(answer) {
  const found = [];
  const { sentence, quote, passages } = answer;
  if (sentence) {
    const marks = quote ? [[quote.start, quote.end]] : [];
    const chars = quote ? null : { byte: sentence.start, spans: sentence.marks };
    found.push({ ...sentence, marks, chars });
  }
  for (const passage of passages) {
    if (found.length >= MOST) break;
    const has = sentence && isOf(sentence, passage) && overlap(sentence, passage);
    if (has || !passage.text.trim()) continue;
    found.push({ ...passage, chars: { byte: passage.start, spans: occurrences(passage.text, answer.answer) } });
  }
  return found;
}

const isOf = (one, other) => one.document === other.document && one.source === other.source;
const overlap = (one, other) => one.start < other.end && other.start < one.end;

// Where an answer stands in a text, in characters as Python counts them.
function occurrences(text, answer) {
  const wanted = answer.trim().replace(/[.!?]+$/, "").toLowerCase();
  const lower = text.toLowerCase();
  const at = wanted.length > 1 && lower.length === text.length ? lower.indexOf(wanted) : -1;
  if (at < 0) return [];
  const start = Array.from(text.slice(0, at)).length;
  return [[start, start + Array.from(text.slice(at, at + wanted.length)).length]];
}

function words(text) {
  const all = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const telling = all.filter((word) => !STOP.has(word));
  return new Set(telling.length ? telling : all);
}

// The answer in parts: [{text, numbers}], numbers from 1, of the places that have a part's words.
export function parts(text, found) {
  const known = found.map((place) => words(place.text));
  const made = sentences(text).map((part) => ({ text: part, numbers: behind(words(part), known) }));
  if (found.length && made.length && !made.some((part) => part.numbers.length)) {
    made.at(-1).numbers = [1];
  }
  return made;
}

function behind(own, known) {
  if (!own.size) return [];
  const shares = known.map((place) => [...own].filter((word) => place.has(word)).length / own.size);
  const enough = shares.map((share, i) => [share, i + 1]).filter(([share]) => share >= ENOUGH);
  return enough.sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 2).map(([, number]) => number);
}

function sentences(text) {
  return text.match(/[^.!?]*(?:[.!?]+(?!\s|$)[^.!?]*)*[.!?]*\s*/gu).filter((part) => part !== "");
}
