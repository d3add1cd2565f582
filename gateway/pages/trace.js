// Where the time of an event went, from its `trace`: waiting, loading and work at each stage, and the way to this browser.

export class TimeSpent {
  #floor = Infinity; // the least that any event took from its commit to here, by two clocks that may differ
  #roundTrip = Infinity;
  #recent = [];
  #most;

  constructor(most = 60) {
    this.#most = most;
  }

  roundTrip(ms) {
    this.#roundTrip = Math.min(this.#roundTrip, ms);
  }

  // Returns { stages: [{ stage, wait, load, step }], between, relay, total } in ms; null without a trace.
  add(trace, arrived_ms) {
    if (!trace) return null;
    const stages = trace.hops.map(({ stage, wait_ms, load_ms, step_ms }) => ({
      stage,
      wait: wait_ms,
      load: load_ms,
      step: step_ms,
    }));
    const known = stages.reduce((sum, { wait, load, step }) => sum + wait + load + step, 0);
    const between = Math.max(0, trace.committed_ms - trace.received_ms - known);
    const relay = this.#relay(arrived_ms - trace.committed_ms);
    const spent = { stages, between, relay, total: known + between + relay };
    this.#recent.push(spent);
    if (this.#recent.length > this.#most) this.#recent.shift();
    return spent;
  }

  get recent() {
    return this.#recent;
  }

  // The fleet's clock is not ours. The fastest event is taken to have needed half of the fastest ping.
  #relay(apart_ms) {
    this.#floor = Math.min(this.#floor, apart_ms);
    const least = Number.isFinite(this.#roundTrip) ? this.#roundTrip / 2 : 0;
    return apart_ms - this.#floor + least;
  }
}

export function median(numbers) {
  if (!numbers.length) return 0;
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Medians of those given: { stages: [{ stage, wait, load, step }], between, relay, total }.
export function typical(spent) {
  const names = [...new Set(spent.flatMap(({ stages }) => stages.map(({ stage }) => stage)))];
  const stages = names.map((stage) => {
    const hops = spent.flatMap((each) => each.stages.filter((hop) => hop.stage === stage));
    const of = (part) => median(hops.map((hop) => hop[part]));
    return { stage, wait: of("wait"), load: of("load"), step: of("step") };
  });
  const of = (part) => median(spent.map((each) => each[part]));
  return { stages, between: of("between"), relay: of("relay"), total: of("total") };
}
