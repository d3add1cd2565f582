// A small line of the last minutes, newest at the right. Gaps where there is no number.

import { Sheet } from "./canvas.js";

export class Spark {
  #sheet;
  #points;
  #values = [];

  // `points`: how many fill the width.
  constructor(canvas, points) {
    this.#points = points;
    this.#sheet = new Sheet(canvas, (...args) => this.#draw(...args));
  }

  show(values) {
    this.#values = values.slice(-this.#points);
    this.#sheet.refresh();
  }

  #draw(context, width, height, colour) {
    const most = Math.max(...this.#values.filter((value) => value !== null), 1e-9);
    const first = this.#points - this.#values.length;
    const x = (i) => ((first + i) / (this.#points - 1)) * width;
    const y = (value) => height - 2 - (value / most) * (height - 5);
    context.fillStyle = colour("line");
    context.fillRect(0, height - 1, width, 1);
    context.strokeStyle = colour("accent");
    context.lineWidth = 2;
    context.lineJoin = "round";
    context.beginPath();
    this.#values.forEach((value, i) => {
      if (value === null) return;
      const joined = i > 0 && this.#values[i - 1] !== null;
      if (joined) context.lineTo(x(i), y(value));
      else context.moveTo(Math.min(x(i), width - 2), y(value));
    });
    context.stroke();
  }
}
