// What went wrong, in words, and what to do next.

const NEXT = {
  unauthorized: ["This gateway wants a valid key.", "Enter an API key in Settings, then start again."],
  forbidden: ["This is not allowed here.", "Use a key with scope transcribe, and this gateway's own address."],
  bad_key: ["This key holds characters that no key has.", "Copy it once more into Settings, without blanks."],
  quota_exceeded: ["This key's share is used up.", "Try again later, or with another key."],
  overloaded: ["All workers are busy.", "Try again in a moment."],
  redis_unavailable: ["The service is not available at the moment.", "Try again in a moment."],
  unreachable: ["The gateway does not answer.", "See whether it runs (streamscribe serve), then start again."],
  lost: ["The connection was lost for too long.", "What was heard so far is below. Start again to go on."],
  session_lost: ["The service has lost this session.", "What was heard so far is below. Start again to go on."],
  session_replaced: ["This session goes on in another place.", "Start again for a new one."],
  stage_failed: ["Recognition failed on this audio.", "Start again; if it comes back, tell the operator."],
  internal: ["Something failed at the service.", "Start again; if it comes back, tell the operator."],
  bad_input: ["The gateway did not take this audio.", "Start again; if it comes back, tell the operator."],
  // The browser's
  NotAllowedError: ["The microphone is blocked.", "Allow it for this page in the address bar, then start again."],
  NotFoundError: ["No microphone was found.", "Connect one and start again, or choose an audio file."],
  NotReadableError: ["Another program holds the microphone.", "Close it and start again."],
  InsecureError: ["Browsers give the microphone to secure pages only.", "Open this page by https or on localhost, or choose an audio file."],
  DecodeError: ["This browser can't read that file.", "Try WAV, MP3, FLAC or M4A, or use streamscribe transcribe."],
  MicrophoneLost: ["The microphone was disconnected.", "What was heard so far is below. Start again to go on."],
};

// `problem` is one of the gateway's ({ code, message, retry_after_s }), of ours, or a DOMException.
export function explain(problem) {
  const code = problem.code && problem.code in NEXT ? problem.code : problem.name;
  const [what, next] = NEXT[code] ?? ["Something went wrong.", "Start again."];
  const wait = problem.retry_after_s > 1 ? ` The gateway asks for ${Math.ceil(problem.retry_after_s)} s.` : "";
  // The gateway's own words say which limit or parameter it was.
  const told = typeof problem.code === "string" && problem.message ? ` (${problem.message})` : "";
  return { what: `${what}${told}`, next: `${next}${wait}`, wantsKey: code === "unauthorized" || code === "bad_key" };
}
