// A canvas as sharp as its screen, in the page's colours, drawn at most once a frame.

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const CALM_MS = 500;

export class Sheet {
  #canvas;
  #draw;
  #asked = false;
  #drawn = 0;

  // `draw(context, width, height, colour)`: in CSS pixels; `colour("accent")` is the page's --accent.
  constructor(canvas, draw) {
    this.#canvas = canvas;
    this.#draw = draw;
    new ResizeObserver(() => this.refresh()).observe(canvas);
    dark.addEventListener("change", () => this.refresh());
  }

  refresh() {
    if (this.#asked) return;
    this.#asked = true;
    const wait = calm.matches ? Math.max(0, this.#drawn + CALM_MS - performance.now()) : 0;
    setTimeout(() => requestAnimationFrame(() => this.#paint()), wait);
  }

  #paint() {
    this.#asked = false;
    this.#drawn = performance.now();
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    const context = this.#canvas.getContext("2d");
    context.scale(scale, scale);
    const style = getComputedStyle(this.#canvas);
    this.#draw(context, width, height, (name) => style.getPropertyValue(`--${name}`));
  }
}
