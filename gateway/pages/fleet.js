// What `/v1/fleet` says, over time. Knows no page.

// The value that a share of the durations between two looks stayed below, in ms: interpolated within the histogram's
// bucket, as Prometheus does. null when there were none.
export function quantile(share, now, before) {
  const counts = now.counts.map((count, i) => count - (before?.counts[i] ?? 0));
  const all = counts.at(-1);
  if (all <= 0) return null;
  const wanted = share * all;
  const i = counts.findIndex((count) => count >= wanted);
  const bounds = now.bounds_s;
  if (i >= bounds.length) return bounds.at(-1) * 1000; // longer than the last bound: at least that
  const [low, below] = i ? [bounds[i - 1], counts[i - 1]] : [0, 0];
  return (low + ((bounds[i] - low) * (wanted - below)) / (counts[i] - below)) * 1000;
}

export class History {
  #reports = [];
  #span_ms;

  constructor(span_ms) {
    this.#span_ms = span_ms;
  }

  add(report) {
    // A gateway that was started anew counts from 0 again.
    const last = this.#reports.at(-1);
    if (last && last.latency_here.counts.at(-1) > report.latency_here.counts.at(-1)) this.#reports = [];
    this.#reports.push(report);
    while (this.#reports[0].at_ms < report.at_ms - this.#span_ms) this.#reports.shift();
  }

  // One number for each look.
  series(of) {
    return this.#reports.map(of);
  }

  // Over the newest `span_ms`: { p50, p95, count }.
  latency(span_ms) {
    const now = this.#reports.at(-1);
    return summary(now.latency_here, this.#at(now.at_ms - span_ms).latency_here);
  }

  // p95 of `span_ms` before each look.
  latencies(span_ms) {
    return this.#reports.map(({ at_ms, latency_here }) => summary(latency_here, this.#at(at_ms - span_ms).latency_here).p95);
  }

  #at(ms) {
    return this.#reports.findLast(({ at_ms }) => at_ms <= ms) ?? this.#reports[0];
  }
}

function summary(now, before) {
  return {
    p50: quantile(0.5, now, before),
    p95: quantile(0.95, now, before),
    count: now.counts.at(-1) - before.counts.at(-1),
  };
}

export function seconds(s) {
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  return s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}
