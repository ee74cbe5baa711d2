"""A browser: Chromium without a window, driven over a pipe by its developer tools' protocol."""

import base64
import json
import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import until

NAMES = ("chromium", "chromium-browser", "google-chrome")
BINARY = next(filter(None, map(shutil.which, NAMES)), "")
NEEDED = "CHROMIUM_NEEDED"
"""With this in the environment, that there is no Chromium is a failure."""

ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # which root, as in CI, could not have
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
WAIT_S = 20
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowRight": 39, "ArrowLeft": 37}


class Failed(Exception):
    """The browser refused a command, or a script raised."""


class Browser:
    """One page of a browser of its own."""

    def __init__(self, folder: Path) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # It reads from descriptor 3 and writes to 4, whatever ours are called.
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, BINARY, *ARGUMENTS, f"--user-data-dir={folder}"],
            pass_fds=[theirs_in, theirs_out],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = ours_out, ours_in
        self._replies: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._changed = threading.Condition()
        self._session = ""
        self._loads = 0
        self.errors: list[str] = []
        """What the page has written to the console as an error, and the scripts that broke."""
        self.requests: list[str] = []
        """Whatever it has asked for, by URL."""
        self.events: deque[str] = deque(maxlen=50)
        threading.Thread(target=self._read, daemon=True).start()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End it, with all of its processes."""
        try:
            self._session = ""
            self.send("Browser.close")
            self._process.wait(WAIT_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._out)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command, and wait for what it gives."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        with self._changed:
            there = self._changed.wait_for(lambda: number in self._replies, WAIT_S)
            if not there:
                raise Failed(f"{method} has not been answered; last heard: {list(self.events)}")
            reply = self._replies.pop(number)
        if "error" in reply:
            raise Failed(f"{method}: {reply['error']}")
        result: dict[str, Any] = reply["result"]
        return result

    def go(self, url: str) -> None:
        """Open a page."""
        before = self._loads
        told = self.send("Page.navigate", url=url)
        if "errorText" in told:
            raise Failed(f"{url}: {told['errorText']}")
        until(lambda: self._loads > before, WAIT_S, lambda: f"{url}: {list(self.events)}")

    def eval(self, script: str) -> Any:
        """Give the value of an expression in the page."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise Failed(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """Give the text of an element, as it is seen."""
        return str(self.eval(f"document.querySelector({json.dumps(selector)}).innerText"))

    def until(self, script: str) -> None:
        """Wait until an expression is true in the page."""

        def explain() -> str:
            return f"{script}\n{self.eval('document.body.innerText')}\n{self.errors}"

        until(lambda: bool(self.eval(script)), WAIT_S, explain)

    def until_seen(self, text: str) -> None:
        """Wait until a text is to be seen."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, key: str, times: int = 1, *, shift: bool = False) -> None:
        """Press a key of the keyboard."""
        of = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 * shift}
        more = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        for _ in range(times):
            self.send("Input.dispatchKeyEvent", type="keyDown", **of, **more)
            self.send("Input.dispatchKeyEvent", type="keyUp", **of)

    def type(self, text: str) -> None:
        """Write text into what has the focus."""
        self.send("Input.insertText", text=text)

    def size(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Give the window a size."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefers(self, scheme: str) -> None:
        """Let the system prefer light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def online(self, is_online: bool) -> None:
        """Cut the page off from everything, or no more."""
        self.send(
            "Network.emulateNetworkConditions",
            offline=not is_online,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Keep what is seen as a PNG file; the whole page, if asked for."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _read(self) -> None:
        with os.fdopen(self._in, "rb") as pipe:
            left = b""
            while part := os.read(pipe.fileno(), 2**16):
                *whole, left = (left + part).split(b"\0")
                for message in whole:
                    self._hear(json.loads(message))

    def _hear(self, message: dict[str, Any]) -> None:
        with self._changed:
            if "id" in message:
                self._replies[message["id"]] = message
                self._changed.notify_all()
                return
            of = message.get("params", {})
            self.events.append(message["method"])
            match message["method"]:
                case "Page.loadEventFired":
                    self._loads += 1
                case "Network.requestWillBeSent":
                    self.requests.append(of["request"]["url"])
                case "Runtime.exceptionThrown":
                    self.errors.append(json.dumps(of["exceptionDetails"]))
                case "Log.entryAdded" if of["entry"]["level"] == "error":
                    self.errors.append(f"{of['entry']['text']} {of['entry'].get('url', '')}")
                case "Runtime.consoleAPICalled" if of["type"] in ("error", "assert"):
                    self.errors.append(json.dumps(of["args"]))


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Give a browser, and end it."""
    made = Browser(folder)
    try:
        yield made
    finally:
        made.close()
