"""``icml25`` and ``python -m icml25cli``: answers Ctrl-C and SIGTERM from the start, before anything slow."""

import os
import signal
import sys


def entry_point() -> None:
    """The console script."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # which a shell sets for jobs in the background
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    from icml25cli.main import main

    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said; what libraries tidy up at exit is not to be cut short
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(code)


if __name__ == "__main__":
    entry_point()
