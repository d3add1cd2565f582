"""`python -m tests.chaos.gateway`: the real gateway process with a clock that can be stepped."""

from gateway.__main__ import main
from tests.chaos.clock import steppable

if __name__ == "__main__":
    steppable()
    main()
