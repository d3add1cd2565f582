// The operator's page: one look a second while it is seen.

import { History, seconds } from "./fleet.js";
import { showSessions, showStages, showWorkers } from "./fleet-tables.js";
import { readAlong } from "./reading.js";
import { choose, chosen } from "./settings.js";
import { Spark } from "./spark.js";

const LOOK_MS = 1000;
const SHOWN_MS = 120_000;
const LATENCY_MS = 30_000;

const at = (id) => document.getElementById(id);
const by = (name, value) => document.querySelector(`[data-${name}="${value}"]`);
const history = new History(SHOWN_MS + LATENCY_MS);
const sparks = Object.fromEntries(
  ["sessions", "backlog", "latency", "workers"].map((name) => [name, new Spark(by("chart", name), SHOWN_MS / LOOK_MS)]),
);
const backlog = ({ sessions }) => Math.max(0, ...sessions.map(({ backlog_s }) => backlog_s));

function figure(name, value, note, series) {
  by("figure", name).textContent = value;
  by("note", name).textContent = note;
  sparks[name].show(series);
}

function show(report) {
  history.add(report);
  figure("sessions", String(report.open_sessions), `${report.connected_here} connected to this gateway`,
    history.series(({ open_sessions }) => open_sessions));
  figure("backlog", seconds(backlog(report)), "audio not yet decoded, of the session furthest behind", history.series(backlog));
  const { p50, p95, count } = history.latency(LATENCY_MS);
  figure("latency", count ? `${p50.toFixed(0)} / ${p95.toFixed(0)} ms` : "–",
    "p50 / p95 of 30 s, from a chunk heard to its event, at this gateway", history.latencies(LATENCY_MS));
  figure("workers", String(report.workers.length), `${report.workers.filter(({ busy }) => busy).length} at work now`,
    history.series(({ workers }) => workers.length));
  showSessions(report, readAlong);
  showStages(report);
  showWorkers(report);
  at("fleet").hidden = false;
  at("login").hidden = true;
  complain(report.problem && ["No new sessions are taken.", report.problem]);
}

function complain(words) {
  at("problem").hidden = !words;
  const [strong, span] = at("problem").children;
  const [what, next] = words || ["", ""];
  if (strong.textContent !== what) strong.textContent = what;
  if (span.textContent !== next) span.textContent = next;
}

function askForKey(words) {
  at("fleet").hidden = true;
  at("login").hidden = false;
  complain(chosen("key") && words);
  choose("key", "");
  at("key").focus();
}

// Whether to look again.
async function look() {
  const key = chosen("key");
  try {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const answer = await fetch("/v1/fleet", { headers, cache: "no-store" });
    if (answer.ok) show(await answer.json());
    else if (answer.status === 401) return askForKey(["This key is not valid.", "Enter another."]);
    else if (answer.status === 403) return askForKey(["This key may not see the fleet.", "Enter one with scope listen."]);
    else complain(["The fleet can't be seen.", "Redis may be away; trying again."]);
  } catch {
    complain(["The gateway does not answer.", "Trying again."]);
  }
  return true;
}

async function watch() {
  while (document.hidden || (await look()) === true) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  choose("key", at("key").value.trim());
  at("key").value = "";
  watch();
});
watch();
