// A dialog that reads one session along.

import { Captions } from "./captions.js";
import { chosen } from "./settings.js";
import { follow } from "./sse.js";
import { clock, Transcript } from "./transcript.js";

const at = (id) => document.getElementById(id);
const captions = new Captions(at("captions"), at("finals"), at("open"));

export function readAlong(session) {
  const transcript = new Transcript();
  const leave = new AbortController();
  captions.clear();
  at("reading-title").textContent = `Session ${session.slice(0, 8)}`;
  at("reading-status").textContent = "Reading along";
  at("reading").addEventListener("close", () => leave.abort(), { once: true });
  at("reading").showModal();
  const take = (event) => {
    if (transcript.apply(event)) captions.show(transcript);
    if (event.type === "end") at("reading-status").textContent = `Over: ${clock(event.audio_ms)} heard`;
    if (event.type === "error") at("reading-status").textContent = `Failed: ${event.message}`;
  };
  follow(session, chosen("key"), take, leave.signal).catch(() => {
    at("reading-status").textContent = "This session is gone.";
  });
}
