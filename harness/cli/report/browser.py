"""Drives a headless Chromium over its debugging pipe. Standard library only.

    with Browser() as browser:
        page = browser.open(path, width=1400)
        page.evaluate("document.title")

The browser is $KVCTS_BROWSER, else the first of `programs` in PATH. find() is None where there is none.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

programs = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


def find() -> str | None:
    named = os.environ.get("KVCTS_BROWSER")
    return shutil.which(named) if named else next((p for p in map(shutil.which, programs) if p), None)


class BrowserError(Exception):
    """The browser ended, did not answer in time, or a script threw."""


class Browser:
    def __init__(self, deadline_s: float = 60):
        self.deadline_s, self.next_id, self.buffer, self.waiting, self.pages = deadline_s, 1, b"", {}, {}
        self.profile = tempfile.TemporaryDirectory(prefix="kvcts-browser-", ignore_cleanup_errors=True)
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        argv = [
            "sh",
            "-c",
            f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}',
            find() or "chromium",
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={self.profile.name}",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_) -> None:
        os.close(self.write_fd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.read_fd)
        self.profile.cleanup()

    def call(self, method: str, session: str | None = None, /, **params) -> dict:
        number, self.next_id = self.next_id, self.next_id + 1
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_fd, data) :]
        end = time.monotonic() + self.deadline_s
        while number not in self.waiting:
            self.receive(end, method)
        answer = self.waiting.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer.get("result", {})

    def receive(self, end: float, what: str) -> None:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_fd], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise BrowserError(f"no answer to {what} within {self.deadline_s:.0f} s")
            data = os.read(self.read_fd, 1 << 20)
            if not data:
                raise BrowserError(f"the browser ended during {what}")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        if "id" in message:
            self.waiting[message["id"]] = message
        elif (page := self.pages.get(message.get("sessionId"))) is not None:
            page.event(message["method"], message["params"])

    def open(
        self, path: Path, width: int = 1400, height: int = 900, scripts: bool = True, dark: bool = False, address: str = ""
    ) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        if dark:
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        if not scripts:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.call("Page.navigate", url=Path(path).resolve().as_uri() + address)
        end = time.monotonic() + self.deadline_s
        while not page.loaded:
            self.receive(end, f"loading {path}")
        return page


class Page:
    def __init__(self, browser: Browser, session: str, target: str):
        self.browser, self.session, self.target = browser, session, target
        self.loaded = False
        self.requests: list[str] = []  # every address asked for
        self.problems: list[str] = []  # errors and warnings of the console, exceptions

    def event(self, method: str, params: dict) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details.get("text", "?")))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])

    def call(self, method: str, **params) -> dict:
        return self.browser.call(method, self.session, **params)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def evaluate(self, expression: str):
        """The value of an expression (promises are awaited), as JSON."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def text(self) -> str:
        return self.evaluate("document.body.innerText")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode={"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40}.get(key, 0),
                **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}),
            )

    def screenshot(self, path: Path, top: float = 0, height: float | None = None) -> None:
        """A PNG of the page from `top` on, `height` pixels (None: to the end)."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
