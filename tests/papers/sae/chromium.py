"""A headless Chromium that a test drives through a pipe, by the DevTools protocol."""

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

PATIENCE = 60  # seconds


def program() -> str | None:
    return next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)


class Browser:
    """One tab. ``requested`` are the addresses that it asked for, ``complaints`` what it said on its console."""

    def __init__(self, profile: Path) -> None:
        found = program()
        assert found
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        wired = ("bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", found)
        self._process = subprocess.Popen(
            [*wired, *options, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._answers = os.fdopen(self._read, "rb")
        self._number, self._rest, self._session = 0, b"", None
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{part}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)  # at which the browser ends
        self._answers.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], PATIENCE)
            more = os.read(self._read, 65536) if ready else b""
            assert more, "the browser ended" if ready else f"the browser said nothing for {PATIENCE} s"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        said = json.loads(message)
        given = said.get("params", {})
        match said.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(given["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(given["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(given["exceptionDetails"]["text"])
            case "Page.loadEventFired":
                self._loaded += 1
        return said

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        os.write(
            self._write, json.dumps(command | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while (said := self._next()).get("id") != self._number:
            pass
        assert "error" not in said, said
        return said["result"]

    def show(self, address: str) -> None:
        """Go there, and wait until it is loaded."""
        before = self._loaded
        self.call("Page.navigate", url=address)
        while self._loaded == before:
            self._next()

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until a JavaScript expression is true; the browser's silence ends it otherwise."""
        self.ask(f"new Promise(done => {{ (function look() {{ {expression} ? done() : setTimeout(look, 10); }})(); }})")

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first element of that kind."""
        x, y = self.ask(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
