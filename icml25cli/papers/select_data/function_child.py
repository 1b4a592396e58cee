"""The process that a user's own reward function runs in: one line of JSON asks, one line of JSON answers.

The first answer is where the module lies, or why it cannot be used. Knows the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import os
import signal
import sys
from typing import Any, TextIO

_PDEATHSIG = 1  # of Linux's prctl


def main(module: str, name: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # where there is such a call: end when the parent is killed
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # standard output is the command's own: what the function prints goes beside it
    sys.path.insert(0, os.getcwd())
    function, said = _found(module, name)
    _tell(told, said)
    if function is None:
        return
    for line in sys.stdin.buffer:
        one = json.loads(line)
        try:
            value = float(function(one["prompt"], one["response"], one["row"]))
        except (Exception, SystemExit):  # a failure of this answer alone
            value = math.nan
        _tell(told, value)


def _found(module: str, name: str) -> tuple[Any, dict[str, str | None]]:
    try:
        function = getattr(importlib.import_module(module), name)
    except AttributeError:
        return None, {"error": f"{module} has no function {name}", "hint": "py:MODULE:FUNCTION"}
    except SystemExit:
        return None, {"error": f"{module} ends the program when imported", "hint": "guard its main part"}
    except Exception as error:  # whatever a module raises
        said = str(error).partition("\n")[0] or type(error).__name__
        return None, {"error": f"{module} cannot be imported: {said}", "hint": "run it from its folder"}
    return function, {"file": getattr(sys.modules[module], "__file__", None)}


def _tell(told: TextIO, what: Any) -> None:
    print(json.dumps(what), file=told, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
