// The sound as bars, speech marked: the last seconds of a microphone, or a whole file.

import { Sheet } from "./canvas.js";
import { peaks } from "./pcm.js";

const BUCKET_MS = 20;
const LIVE_MS = 15_000;
const BAR = 3;
const GAP = 2;

export class Wave {
  #sheet;
  #peaks = [];
  #speech = [];
  #through_ms = 0;
  #whole = false;
  #onSpan;

  // `onSpan(from_ms, to_ms)`: what is in view.
  constructor(canvas, onSpan) {
    this.#sheet = new Sheet(canvas, (...args) => this.#draw(...args));
    this.#onSpan = onSpan;
  }

  // For a file, all its samples; else they come by `add`.
  reset(samples = null, rate = 0) {
    this.#whole = samples !== null;
    this.#peaks = samples ? peaks(samples, (rate * BUCKET_MS) / 1000) : [];
    this.mark([], 0);
  }

  add(floats, rate) {
    this.#peaks.push(...peaks(floats, (rate * BUCKET_MS) / 1000));
    this.#sheet.refresh();
  }

  mark(speech, through_ms) {
    this.#speech = speech;
    this.#through_ms = through_ms;
    this.#sheet.refresh();
  }

  #draw(context, width, height, colour) {
    const now = this.#peaks.length * BUCKET_MS;
    const span = this.#whole ? Math.max(now, 1) : LIVE_MS;
    const from = this.#whole ? 0 : Math.max(0, now - LIVE_MS);
    const x = (ms) => ((ms - from) / span) * width;
    this.#onSpan(from, from + span);
    context.fillStyle = colour("speech");
    for (const { start_ms, end_ms } of this.#speech) {
      const left = Math.max(0, x(start_ms));
      const right = Math.min(width, x(end_ms ?? Math.max(this.#through_ms, start_ms)));
      if (right > left) context.fillRect(left, 0, right - left, height);
    }
    // Bars stand on a grid of audio time, so that they move along and do not dance.
    const step = (span / width) * (BAR + GAP);
    for (let bar = Math.floor(from / step); bar * step < now; bar += 1) {
      this.#bar(context, x(bar * step), height, colour, bar * step, step);
    }
  }

  #bar(context, left, height, colour, at_ms, step) {
    const first = Math.floor(at_ms / BUCKET_MS);
    const last = Math.max(first + 1, Math.floor((at_ms + step) / BUCKET_MS));
    let peak = 0;
    for (let i = first; i < Math.min(last, this.#peaks.length); i += 1) peak = Math.max(peak, this.#peaks[i]);
    const size = Math.max(BAR, Math.sqrt(peak) * (height - 8));
    const spoken = this.#speech.some(({ start_ms, end_ms }) => at_ms + step > start_ms && at_ms < (end_ms ?? this.#through_ms));
    context.fillStyle = colour(spoken ? "accent" : at_ms < this.#through_ms || !this.#whole ? "bar" : "bar-ahead");
    context.beginPath();
    context.roundRect(left, (height - size) / 2, BAR, size, BAR / 2);
    context.fill();
  }
}
