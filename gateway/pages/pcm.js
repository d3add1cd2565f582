// Samples: floats as browsers have them, and the 16-bit integers that go over the wire.

export function toInt16(floats) {
  const samples = new Int16Array(floats.length);
  for (let i = 0; i < floats.length; i += 1) {
    const level = Math.max(-1, Math.min(1, floats[i]));
    samples[i] = Math.round(level * 32767);
  }
  return samples;
}

export function mixDown(channels) {
  if (channels.length === 1) return channels[0];
  const mixed = new Float32Array(channels[0].length);
  for (const channel of channels) {
    for (let i = 0; i < mixed.length; i += 1) mixed[i] += channel[i] / channels.length;
  }
  return mixed;
}

// The loudest sample of each `size`: what a waveform shows.
export function peaks(floats, size) {
  const found = [];
  for (let at = 0; at < floats.length; at += size) {
    let peak = 0;
    for (let i = at; i < Math.min(at + size, floats.length); i += 1) peak = Math.max(peak, Math.abs(floats[i]));
    found.push(peak);
  }
  return found;
}
