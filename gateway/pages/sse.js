// Server-sent events by fetch: EventSource can't send a key in a header, and addresses with keys end up in logs.

const AGAIN_MS = 1000;

// Calls `take(event)` for each event of the session until it is over or `signal` ends it. Rejects with an Error that
// has a `status` when the gateway refuses.
export async function follow(session, key, take, signal) {
  let last = 0;
  while (!signal.aborted) {
    const headers = { "Last-Event-ID": String(last), ...(key && { Authorization: `Bearer ${key}` }) };
    try {
      const answer = await fetch(`/v1/sessions/${session}/events`, { headers, signal, cache: "no-store" });
      if (answer.status === 204) return;
      if (!answer.ok) throw Object.assign(new Error("refused"), { status: answer.status });
      for await (const event of eventsOf(answer.body)) {
        last = event.event;
        take(event);
        if (event.type === "end" || event.type === "error") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status && error.status !== 503) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS)); // the connection was lost
  }
}

export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split(/\r?\n/);
    text = lines.pop();
    // Ours are one line each; comments keep the connection alive.
    for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
  }
}
