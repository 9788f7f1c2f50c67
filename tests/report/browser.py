"""A real browser without a window: Chromium, talked to in its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

#: What Chromium is called by those who package it.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Seconds after which an answer is no longer expected.
PATIENCE = 60.0
# Chromium wants its pipes at these numbers.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
    # No test may reach the network, and the browser itself would: for updates, models, dictionaries.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser() -> str | None:
    """Path of the browser; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Page:
    """A page that was opened: the requests it made, what it said on the console, and a way to ask it more."""

    browser: Browser
    session: str
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def ask(self, expression: str) -> Any:
        """Value of a JavaScript expression."""
        answer = self.browser.call("Runtime.evaluate", self.session, expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def pdf(self) -> bytes:
        """The page as it prints, on A4."""
        answer = self.browser.call("Page.printToPDF", self.session, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(answer["data"])


class Browser:
    """A running browser; ``net_log`` is whole once it is closed."""

    def __init__(self, executable: str, folder: Path) -> None:
        self.net_log = folder / "net.json"
        read, self._write = _pipe()
        self._read, write = _pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCH, str(read), str(write), executable, *OPTIONS),
                f"--user-data-dir={folder / 'user'}",
                f"--log-net-log={self.net_log}",
                "about:blank",
            ],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._number = 0

    def open(self, path: Path, width: int) -> Page:
        """Open a file in a new tab that is ``width`` pixels wide; narrow ones are phones."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable", page.session)
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            page.session,
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self._events.clear()
        self.call("Page.navigate", page.session, url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._receive())
        self.call("Runtime.evaluate", page.session, expression="1")  # what was still under way has arrived after it
        for event in self._events:
            _note(page, event["method"], event["params"])
        return page

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._events.append(answer)

    def close(self) -> list[str]:
        """End the browser; gives the addresses that pages asked the network for, as its own log has them."""
        self.call("Browser.close")
        self._process.wait(PATIENCE)
        log = json.loads(self.net_log.read_text())
        sent = (event.get("params", {}) for event in log["events"])
        # What the browser asks for on its own account has no initiator.
        return [params["url"] for params in sent if params.get("initiator", "not an origin") != "not an origin"]

    def kill(self) -> None:
        """End it whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


def browser_or_skip() -> str:
    """Path of a browser; without one the test skips, or fails where CLS_ANALYSIS_REQUIRE_BROWSER is 1."""
    path = find_browser()
    if path is None:
        reason = f"no browser to open the report in: none of {', '.join(NAMES)} is installed"
        if os.environ.get("CLS_ANALYSIS_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and CLS_ANALYSIS_REQUIRE_BROWSER=1 (Debian: apt-get install chromium)")
        pytest.skip(f"{reason} (Debian: apt-get install chromium)")
    return path


def _pipe() -> tuple[int, int]:
    """A pipe whose ends lie above the numbers that Chromium wants."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high


def _note(page: Page, method: str, params: dict[str, Any]) -> None:
    if method == "Network.requestWillBeSent":
        page.requests.append(params["request"]["url"])
    elif method == "Log.entryAdded":
        page.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
    elif method == "Runtime.consoleAPICalled":
        page.console.append(f"{params['type']}: {params['args']}")
    elif method == "Runtime.exceptionThrown":
        page.console.append(str(params["exceptionDetails"]))
