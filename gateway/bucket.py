"""A token bucket: an average rate, with bursts."""

from collections.abc import Callable

from shared.clock import mono_ms


class Bucket:
    """Fills with `rate` tokens a second up to `burst`; full at the start. Rate 0: endless."""

    def __init__(self, rate: float, burst: float, now_ms: Callable[[], float] = mono_ms) -> None:
        self._rate = rate
        self._burst = burst
        self._now_ms = now_ms
        self._tokens = burst
        self._at = now_ms()

    def take(self) -> bool:
        """Take a token, if there is one."""
        now = self._now_ms()
        self._tokens = min(self._burst, self._tokens + (now - self._at) / 1000 * self._rate)
        self._at = now
        if self._rate and self._tokens < 1:
            return False
        self._tokens -= 1
        return True
