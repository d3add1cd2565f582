// Sessions, stages and workers as tables.

import { seconds } from "./fleet.js";
import { cell, head, keepRows, put } from "./rows.js";

// Sessions further behind than this are marked: running ones are held back at about 3.2 s.
const LATE_S = 3;
const at = (id) => document.getElementById(id);

export function showSessions({ sessions, open_sessions }, onOpen) {
  keepRows(at("sessions"), sessions, {
    key: ({ session }) => session,
    make: (row) => [head(button(row, onOpen), owner(row)), cell("", "wide"), cell(), cell(), cell("", "wide")],
    fill: ([, age, heard, behind, events], row) => {
      put(age, seconds(row.age_s));
      put(heard, seconds(row.received_s));
      put(behind, seconds(row.backlog_s), row.backlog_s > LATE_S ? "late" : "");
      put(events, String(row.events));
    },
  });
  at("nobody").hidden = sessions.length > 0;
  at("listed").textContent = sessions.length < open_sessions ? `${sessions.length} of ${open_sessions} listed` : "";
}

export function showStages({ stages }) {
  keepRows(at("stages"), stages, {
    key: ({ stage }) => stage,
    make: ({ stage }) => [head(stage), cell(), cell(), cell(), cell()],
    fill: ([, workers, waiting, inWork, oldest], row) => {
      put(workers, String(row.workers), row.workers ? "" : "late");
      put(waiting, String(row.waiting));
      put(inWork, String(row.in_work));
      put(oldest, seconds(row.oldest_s), row.oldest_s > LATE_S ? "late" : "");
    },
  });
}

export function showWorkers({ workers }) {
  keepRows(at("workers"), workers, {
    key: ({ worker, stages }) => `${worker} ${stages}`,
    make: ({ worker, stages }) => [head(worker), cell(stages.join(", ")), cell()],
    fill: ([, , now], row) => put(now, row.busy ? "busy" : "idle", row.busy ? "busy" : ""),
  });
  at("no-workers").hidden = workers.length > 0;
}

function button({ session }, onOpen) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "quiet";
  element.textContent = session.slice(0, 8);
  element.title = session;
  element.setAttribute("aria-label", `Read session ${session.slice(0, 8)} along`);
  element.addEventListener("click", () => onOpen(session));
  return element;
}

function owner(row) {
  const element = document.createElement("small");
  element.textContent = row.owner;
  return element;
}
