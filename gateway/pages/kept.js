// What was sent and may have to be sent again, until the gateway says that it is safe.

export class Kept {
  #frames = []; // { start, samples }
  #sent = 0;

  add(samples) {
    this.#frames.push({ start: this.#sent, samples });
    this.#sent += samples.length;
  }

  // In samples.
  get sent() {
    return this.#sent;
  }

  // Forget what comes before this sample.
  safe(sample) {
    const first = this.#frames.findIndex(({ start, samples }) => start + samples.length > sample);
    this.#frames.splice(0, first < 0 ? this.#frames.length : first);
  }

  // What was sent from this sample on.
  *again(sample) {
    for (const { start, samples } of this.#frames) {
      if (start + samples.length > sample) yield samples.subarray(Math.max(0, sample - start));
    }
  }
}
