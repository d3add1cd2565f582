"""Memory of processes that live long and must not stop."""

import ctypes
import gc

# glibc's; musl and macOS give memory back by themselves.
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def settle() -> None:
    """Leave what is there now out of garbage collection; call it once everything is imported and built.

    Python looks through all of the heap when a quarter of it is new. With the 90,000 objects of a gateway's imports
    (190,000 of a worker's) that takes 0.15 s, in which nobody is served, and is so rare that a hundred finished
    sessions, each with a megabyte of audio, wait for it.
    """
    gc.collect()
    gc.freeze()


def trim() -> None:
    """Give the free memory between what is in use back to the system.

    Caches that live long among results that do not leave holes: without this a worker of 500 MB grew to 1,050 in ten
    minutes and was still growing. It takes 10 ms.
    """
    if _malloc_trim:
        _malloc_trim(0)
