// Runs on the audio thread: collects blocks of 128 samples to frames, and hands these on.

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.size = processorOptions.frame;
    this.frame = new Float32Array(this.size);
    this.filled = 0;
    this.over = false;
    this.port.onmessage = () => {
      this.hand();
      this.over = true;
      this.port.postMessage(null);
    };
  }

  hand() {
    const frame = this.frame.slice(0, this.filled);
    this.filled = 0;
    if (frame.length) this.port.postMessage(frame, [frame.buffer]);
  }

  process([channels]) {
    const length = channels.length && !this.over ? channels[0].length : 0;
    for (let i = 0; i < length; i += 1) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      this.frame[this.filled] = sum / channels.length;
      this.filled += 1;
      if (this.filled === this.size) this.hand();
    }
    return !this.over;
  }
}

registerProcessor("capture", Capture);
