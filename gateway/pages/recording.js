// An audio file: decoded by the browser to 16 kHz mono, handed on as fast as the gateway takes it.

import { mixDown, toInt16 } from "./pcm.js";

const RATE = 16000;
const FRAME = RATE / 10;
// Two seconds on their way are enough to keep the gateway busy, and little to send again.
const MOST_BUFFERED = 2 * RATE * 2;
const LOOK_MS = 20;

export class Recording {
  #samples;
  #stopped = false;

  // Rejects with an Error named DecodeError, or the browser's when the file can't be read.
  static async open(file) {
    const bytes = await file.arrayBuffer();
    const recording = new Recording();
    try {
      const decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes);
      const channels = Array.from({ length: decoded.numberOfChannels }, (_, i) => decoded.getChannelData(i));
      recording.#samples = mixDown(channels);
    } catch {
      throw Object.assign(new Error(file.name), { name: "DecodeError" });
    }
    return recording;
  }

  get rate() {
    return RATE;
  }

  get samples() {
    return this.#samples;
  }

  get duration_ms() {
    return (this.#samples.length / RATE) * 1000;
  }

  // Resolves when all is sent, or it was stopped. `room()` says how many bytes wait in the socket.
  async play(send, room) {
    for (let at = 0; at < this.#samples.length; at += FRAME) {
      while (!this.#stopped && room() > MOST_BUFFERED) await pause(LOOK_MS);
      if (this.#stopped) return;
      send(toInt16(this.#samples.subarray(at, at + FRAME)));
    }
  }

  stop() {
    this.#stopped = true;
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
