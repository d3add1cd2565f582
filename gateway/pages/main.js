// The captions page: buttons, files and what a run tells, put together.

import { Captions } from "./captions.js";
import { Microphone } from "./microphone.js";
import { explain } from "./problems.js";
import { Recording } from "./recording.js";
import { Run } from "./run.js";
import { chosen } from "./settings.js";
import { clock } from "./transcript.js";
import { Times } from "./times.js";
import { offerTools } from "./tools.js";
import { onFile } from "./files.js";
import { openSettings, prepareSettings } from "./settings-dialog.js";
import { Wave } from "./wave.js";

const at = (id) => document.getElementById(id);
const captions = new Captions(at("captions"), at("finals"), at("open"));
const times = new Times(at("times"), at("times-rows"), at("times-scale"));
const wave = new Wave(at("wave"), (from, to) => {
  at("wave-from").textContent = clock(from);
  at("wave-to").textContent = clock(to);
});
const tools = offerTools(() => run?.transcript.finals ?? []);

let run = null;
let phase = "idle"; // idle | starting | running | finishing
let file = null;

const SAYS = {
  idle: "Speak, or drop an audio file anywhere.",
  starting: "Starting …",
  running: "Listening",
  finishing: "Finishing …",
  lost: "Connection lost, trying again …",
};

function say(name, words = SAYS[name]) {
  if (at("status").textContent !== words) at("status").textContent = words;
  document.body.dataset.phase = name;
}

function enter(next) {
  phase = next;
  say(next, next === "running" && file ? `Transcribing ${file.name}` : SAYS[next]);
  const busy = next !== "idle";
  at("start").textContent = busy ? "Stop" : "Start listening";
  at("start").disabled = next === "starting";
  at("choose").disabled = busy;
}

function complain(problem) {
  const { what, next, wantsKey } = explain(problem);
  const [strong, span] = at("problem").children;
  strong.textContent = what;
  span.textContent = next;
  at("problem").hidden = false;
  if (wantsKey) openSettings();
}

function onState(name, problem) {
  if (name === "open") enter(phase === "finishing" ? "finishing" : "running");
  if (name === "lost") say("lost");
  if (name === "over" || name === "failed") {
    enter("idle");
    if (name === "over") say("idle", `Done: ${clock(run.transcript.through_ms)} heard.`);
    if (problem) complain(problem);
    at("progress").hidden = true;
  }
}

function onEvent(kind) {
  if (kind) captions.show(run.transcript);
  times.show(run.times.recent);
  at("empty").hidden = true;
  tools.refresh();
  onProgress();
}

function onProgress() {
  const { speech, through_ms } = run.transcript;
  wave.mark(speech, through_ms);
  at("clock").textContent = clock(Math.max(run.sent_ms, through_ms));
  if (file) at("progress").value = Math.max(run.safe_ms, through_ms) / file.duration_ms;
}

async function begin(open, chosenFile = null) {
  if (phase !== "idle" || !(await tools.mayGo())) return;
  at("problem").hidden = true;
  enter("starting");
  let source;
  try {
    source = await open();
  } catch (error) {
    enter("idle");
    complain(error);
    return;
  }
  file = chosenFile && Object.assign(source, { name: chosenFile.name });
  run = new Run(source, { key: chosen("key"), denoise: Boolean(chosen("denoise")) }, {
    state: onState,
    event: onEvent,
    progress: onProgress,
  });
  captions.clear();
  tools.forget();
  at("empty").hidden = false;
  at("clock").hidden = false;
  at("progress").hidden = !file;
  wave.reset(file?.samples, source.rate);
  if (file) await run.play();
  else await run.listen((floats) => hear(floats, source.rate), microphoneLost);
}

function hear(floats, rate) {
  wave.add(floats, rate);
  at("clock").textContent = clock(run.sent_ms);
}

function microphoneLost() {
  if (phase !== "running") return;
  complain({ name: "MicrophoneLost" });
  stop();
}

function stop() {
  enter("finishing");
  run.finish();
}

prepareSettings();
at("start").addEventListener("click", () => (phase === "idle" ? begin(() => Microphone.open()) : stop()));
onFile((chosenFile) => begin(() => Recording.open(chosenFile), chosenFile));
addEventListener("pagehide", () => run?.abandon());
