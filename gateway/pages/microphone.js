// The microphone, as frames of 40 ms at the rate that the browser records at.

const FRAME_S = 0.04;
const PATIENCE_MS = 500;
const MOST_HZ = 48000; // what the gateway takes
// Processing meant for calls makes speech harder to recognise; the gain helps quiet microphones.
const CONSTRAINTS = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: true };

export class Microphone {
  #stream;
  #context;
  #node;
  #stopping;

  // Rejects with a DOMException, or an Error named InsecureError.
  static async open() {
    if (!navigator.mediaDevices || !globalThis.AudioWorkletNode) {
      throw Object.assign(new Error("no microphone without https"), { name: "InsecureError" });
    }
    const microphone = new Microphone();
    microphone.#stream = await navigator.mediaDevices.getUserMedia({ audio: CONSTRAINTS });
    try {
      await microphone.#prepare();
    } catch (error) {
      microphone.#release();
      throw error;
    }
    return microphone;
  }

  async #prepare() {
    this.#context = new AudioContext();
    if (this.#context.sampleRate > MOST_HZ) {
      await this.#context.close();
      this.#context = new AudioContext({ sampleRate: MOST_HZ });
    }
    await this.#context.audioWorklet.addModule("/pages/capture-worklet.js");
  }

  get rate() {
    return this.#context.sampleRate;
  }

  // `onAudio` gets Float32Arrays; `onLost` is called when the device goes away.
  async start(onAudio, onLost) {
    const processorOptions = { frame: Math.round(FRAME_S * this.rate) };
    this.#node = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0, processorOptions });
    this.#node.port.onmessage = ({ data }) => data && onAudio(data);
    this.#stream.getAudioTracks()[0].onended = onLost;
    this.#context.createMediaStreamSource(this.#stream).connect(this.#node);
    await this.#context.resume();
  }

  // Resolves when the last frame has been handed on.
  stop() {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop() {
    if (this.#node) {
      const port = this.#node.port;
      const handed = port.onmessage;
      const last = new Promise((resolve) => {
        port.onmessage = (message) => (message.data ? handed(message) : resolve());
      });
      port.postMessage("stop");
      // A phone that has taken the sound away does not answer.
      await Promise.race([last, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
    }
    this.#release();
  }

  #release() {
    for (const track of this.#stream.getTracks()) track.stop();
    this.#context?.close();
  }
}
