// Finals as plain text and subtitles, cut as `streamscribe transcribe` cuts them (ops/formats.py).

const LINE_CHARS = 42;
const CUE_LINES = 2;

export function asText(finals) {
  return finals.map(({ text }) => `${text}\n`).join("");
}

export function asSrt(finals) {
  return cues(finals)
    .map(({ start_ms, end_ms, lines }, i) => block([i + 1, span(start_ms, end_ms, ","), ...lines]))
    .join("\n");
}

export function asVtt(finals) {
  const blocks = cues(finals).map(({ start_ms, end_ms, lines }) =>
    block([span(start_ms, end_ms, "."), ...lines.map(escaped)]),
  );
  return ["WEBVTT\n", ...blocks].join("\n");
}

// At most two lines of 42 characters each, at word times, without overlaps.
export function cues(finals) {
  const found = [];
  for (const final of finals.filter(({ text }) => text.trim())) {
    for (const cue of cuesOf(final)) {
      const start_ms = Math.max(cue.start_ms, found.at(-1)?.end_ms ?? 0);
      found.push({ ...cue, start_ms, end_ms: Math.max(cue.end_ms, start_ms + 1) });
    }
  }
  return found;
}

function cuesOf(final) {
  const lines = balanced(wordsOf(final.text));
  const times = wordTimes(final);
  const found = [];
  let first = 0;
  for (let at = 0; at < lines.length; at += CUE_LINES) {
    const group = lines.slice(at, at + CUE_LINES);
    const beyond = first + wordsOf(group.join(" ")).length;
    const start_ms = first ? times[first][0] : final.start_ms;
    const end_ms = beyond < times.length ? times[beyond - 1][1] : final.end_ms;
    found.push({ start_ms, end_ms, lines: group });
    first = beyond;
  }
  return found;
}

// As few lines as fit, then as even as possible: no line of one last word.
function balanced(words) {
  const fewest = wrap(words, LINE_CHARS);
  const longest = Math.max(...words.map(length));
  for (let width = Math.min(longest, LINE_CHARS); width < LINE_CHARS; width += 1) {
    const lines = wrap(words, width);
    if (lines.length === fewest.length) return lines;
  }
  return fewest;
}

function wrap(words, width) {
  const lines = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && length(last) + 1 + length(word) <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

// Of every word; spread over the utterance by length when the event's words differ from its text.
function wordTimes(final) {
  const words = wordsOf(final.text);
  const told = final.words ?? [];
  if (told.length === words.length && told.every(({ text }, i) => text === words[i])) {
    return told.map(({ start_ms, end_ms }) => [start_ms, end_ms]);
  }
  const total = words.reduce((sum, word) => sum + length(word) + 1, 0);
  let done = 0;
  const edge = () => final.start_ms + Math.floor(((final.end_ms - final.start_ms) * done) / total);
  return words.map((word) => {
    const start = edge();
    done += length(word) + 1;
    return [start, edge()];
  });
}

const wordsOf = (text) => text.split(/\s+/).filter(Boolean);
const length = (text) => Array.from(text).length;
const block = (lines) => lines.map((line) => `${line}\n`).join("");
const span = (start, end, point) => `${stamp(start, point)} --> ${stamp(end, point)}`;
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function stamp(ms, point) {
  const parts = [Math.floor(ms / 3_600_000), Math.floor(ms / 60_000) % 60, Math.floor(ms / 1000) % 60];
  return `${parts.map((part) => String(part).padStart(2, "0")).join(":")}${point}${String(ms % 1000).padStart(3, "0")}`;
}
