// One run: a source of sound (microphone or recording), its stream, and the transcript that comes back.

import { toInt16 } from "./pcm.js";
import { Stream } from "./stream.js";
import { TimeSpent } from "./trace.js";
import { Transcript } from "./transcript.js";

export class Run {
  transcript = new Transcript();
  times = new TimeSpent();
  safe_ms = 0; // what the gateway will not ask for again
  #source;
  #stream;

  // `on`: state(name, problem), event(kind), progress().
  constructor(source, { key, denoise }, on) {
    this.#source = source;
    const options = { sample_rate: source.rate, encoding: "pcm_s16le", denoise };
    this.#stream = new Stream(options, key, {
      state: (name, problem) => {
        if (name === "over" || name === "failed") source.stop();
        on.state(name, problem);
      },
      event: (event, arrived_ms) => {
        this.times.add(event.trace, arrived_ms);
        on.event(this.transcript.apply(event));
      },
      safe: (sample) => {
        this.safe_ms = (sample / source.rate) * 1000;
        on.progress();
      },
      roundTrip: (ms) => this.times.roundTrip(ms),
    });
  }

  get sent_ms() {
    return (this.#stream.sent / this.#source.rate) * 1000;
  }

  get session() {
    return this.#stream.session;
  }

  // The microphone's frames go to `heard` too; `lost` is called when it goes away.
  async listen(heard, lost) {
    this.#stream.open();
    await this.#source.start((floats) => {
      this.#stream.send(toInt16(floats));
      heard(floats);
    }, lost);
  }

  async play() {
    this.#stream.open();
    await this.#source.play(
      (samples) => this.#stream.send(samples),
      () => this.#stream.waiting,
    );
    this.#stream.end();
  }

  // Everything said so far is still decoded.
  async finish() {
    await this.#source.stop();
    this.#stream.end();
  }

  abandon() {
    this.#source.stop();
    this.#stream.abandon();
  }
}
