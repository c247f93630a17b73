"""A cable between a client and a server, which a test cuts, or lets go silent."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """It may break with a word to both ends, or without one as that of a closed laptop does."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.down = False
        self.silent = False
        self.ends: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, and no new one is made until `mend`."""
        self.down = True
        self._break()

    def hang(self) -> None:
        """Nothing comes through, and nobody is told; new connections are made and stay silent."""
        self.silent = True

    def mend(self) -> None:
        """As before. What hung stays dead: the far end has forgotten it."""
        if self.silent:
            self.ends, old = [], self.ends
            self.dead = old
        self.down = self.silent = False

    def _break(self) -> None:
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.ends = []

    def _accept(self) -> None:
        while True:
            try:
                near, _address = self.listener.accept()
            except OSError:
                return
            if self.down:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.to))
            self.ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.silent or source not in self.ends:
                    continue
                target.sendall(data)
        if not self.silent and source in self.ends:
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.listener.close()
        self._break()
