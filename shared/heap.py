"""Garbage collection in processes that live long and must not stop."""

import gc


def settle() -> None:
    """Leave what is there now out of garbage collection; call it once everything is imported and built.

    Python looks through all of the heap when a quarter of it is new. With the 90,000 objects of a gateway's imports
    (190,000 of a worker's) that takes 0.15 s, in which nobody is served, and is so rare that a hundred finished
    sessions, each with a megabyte of audio, wait for it.
    """
    gc.collect()
    gc.freeze()
