"""Ties a process to its parent, where the system can."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """In the child: `number` is sent to it when its parent dies. One that is an orphan already ends here."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)
