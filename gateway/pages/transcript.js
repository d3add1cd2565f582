// What a session's events add up to. Knows no page.

// The first `stable` characters, which stay, and the rest. Characters are code points, as Python counts them.
export function splitStable(text, stable) {
  const points = Array.from(text);
  return [points.slice(0, stable).join(""), points.slice(stable).join("")];
}

export class Transcript {
  finals = []; // of type final, with words
  notes = []; // { at_ms, text }: what is missing
  speech = []; // { start_ms, end_ms }; end_ms is null while somebody speaks
  open = null; // the newest partial of the utterance that is not final yet
  through_ms = 0; // decoded so far

  // Returns what is new to show: "final", "partial", "note" or null.
  apply(event) {
    this.through_ms = Math.max(this.through_ms, event.through_ms ?? 0, event.audio_ms ?? 0);
    switch (event.type) {
      case "speech_start":
        this.speech.push({ start_ms: event.start_ms, end_ms: null });
        return null;
      case "partial":
        this.open = event;
        return "partial";
      case "final":
        this.open = null;
        if (event.text.trim()) this.finals.push(event);
        return event.text.trim() ? "final" : "partial";
      case "speech_end":
        this.#close(event.end_ms);
        return null;
      case "gap":
        this.notes.push({ at_ms: event.start_ms, text: gapText(event) });
        return "note";
      case "end":
        this.#close(event.audio_ms);
        return null;
      default: // newer ones than we know
        return null;
    }
  }

  #close(end_ms) {
    const last = this.speech.at(-1);
    if (last && last.end_ms === null) last.end_ms = end_ms;
  }
}

function gapText({ start_ms, end_ms }) {
  return `${((end_ms - start_ms) / 1000).toFixed(1)} s of audio were lost here`;
}

// 61500 as 1:01, and hours when there are any.
export function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}
