// A transcript as people read it: finished lines with their time, and the words that may still change below.

import { clock, splitStable } from "./transcript.js";

export class Captions {
  #box;
  #list;
  #open;
  #shown = 0;
  #notes = 0;
  // Whoever has scrolled up to read stays there; everybody else sees the newest line, also when a phone is turned.
  #follows = true;

  // `list` is announced by screen readers, `open` is not: its words come again.
  constructor(box, list, open) {
    this.#box = box;
    this.#list = list;
    this.#open = open;
    box.addEventListener("scroll", () => (this.#follows = this.#atEnd()));
    new ResizeObserver(() => this.#follow()).observe(box);
  }

  clear() {
    this.#shown = this.#notes = 0;
    this.#list.replaceChildren();
    this.#open.replaceChildren();
  }

  show(transcript) {
    this.#follows = this.#atEnd();
    for (const { at_ms, text } of transcript.notes.slice(this.#notes)) this.#line(at_ms, text, "note");
    for (const { start_ms, text } of transcript.finals.slice(this.#shown)) this.#line(start_ms, text);
    this.#notes = transcript.notes.length;
    this.#shown = transcript.finals.length;
    this.#tentative(transcript.open);
    this.#follow();
  }

  #atEnd() {
    return this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 60;
  }

  #follow() {
    if (this.#follows) this.#box.scrollTop = this.#box.scrollHeight;
  }

  #line(at_ms, text, kind = "") {
    const line = document.createElement("li");
    line.className = kind;
    line.append(time(at_ms), words(text));
    this.#list.append(line);
  }

  #tentative(partial) {
    if (!partial) {
      this.#open.replaceChildren();
      return;
    }
    const [stable, rest] = splitStable(partial.text, partial.stable);
    const both = words(stable);
    const dim = document.createElement("span");
    dim.className = "tentative";
    dim.textContent = rest;
    both.append(dim);
    this.#open.replaceChildren(time(partial.start_ms), both);
  }
}

function time(ms) {
  const element = document.createElement("time");
  element.textContent = clock(ms);
  return element;
}

function words(text) {
  const element = document.createElement("span");
  element.className = "words";
  element.textContent = text;
  return element;
}
