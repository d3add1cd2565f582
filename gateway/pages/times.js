// Time per stage: a column for each of the newest events, and what is typical as a table.

import { Sheet } from "./canvas.js";
import { typical } from "./trace.js";

const TYPICAL_OF = 20;
const COLUMN = 6;
const GAP = 2;

// From the bottom up: what each part of a column is, and the colour it has.
const PARTS = [
  ["wait", (spent) => sum(spent.stages, "wait")],
  ["load", (spent) => sum(spent.stages, "load")],
  ["frontend", (spent) => step(spent, "frontend")],
  ["acoustic", (spent) => step(spent, "acoustic")],
  ["decoder", (spent) => step(spent, "decoder")],
  ["relay", (spent) => spent.between + spent.relay],
];

export class Times {
  #sheet;
  #body;
  #scale;
  #recent = [];

  constructor(canvas, tableBody, scale) {
    this.#body = tableBody;
    this.#scale = scale;
    this.#sheet = new Sheet(canvas, (...args) => this.#draw(...args));
  }

  // What TimeSpent.recent holds.
  show(recent) {
    this.#recent = recent;
    this.#sheet.refresh();
    this.#body.replaceChildren(...rows(typical(recent.slice(-TYPICAL_OF))));
  }

  #draw(context, width, height, colour) {
    const shown = this.#recent.slice(-Math.floor((width + GAP) / (COLUMN + GAP)));
    const most = ceiling(Math.max(...shown.map(({ total }) => total), 0));
    this.#scale.textContent = shown.length ? `${most} ms` : "";
    context.fillStyle = colour("line");
    context.fillRect(0, 0, width, 1);
    context.fillRect(0, height - 1, width, 1);
    shown.forEach((spent, i) => {
      let bottom = height - 1;
      for (const [name, of] of PARTS) {
        const size = (of(spent) / most) * (height - 2);
        context.fillStyle = colour(`part-${name}`);
        context.fillRect(i * (COLUMN + GAP), bottom - size, COLUMN, size);
        bottom -= size;
      }
    });
  }
}

function rows({ stages, between, relay, total }) {
  const found = stages.map(({ stage, wait, load, step: work }) => row(stage, stage, [wait, load, work]));
  found.push(row("passing on", "relay", ["", "", between + relay]));
  found.push(row("all", "", ["", "", total]));
  return found;
}

function row(name, part, cells) {
  const line = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  if (part) head.dataset.part = part;
  head.textContent = name;
  line.append(head, ...cells.map((ms) => cell(ms)));
  return line;
}

function cell(ms) {
  const element = document.createElement("td");
  element.textContent = ms === "" ? "" : ms < 10 ? ms.toFixed(1) : ms.toFixed(0);
  return element;
}

// The next of 50, 100, 200, 500, 1000 …
export function ceiling(ms) {
  const power = 10 ** Math.floor(Math.log10(Math.max(ms, 50)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= ms);
}

const sum = (stages, part) => stages.reduce((total, stage) => total + stage[part], 0);
const step = ({ stages }, name) => sum(stages.filter(({ stage }) => stage === name), "step");
