"""A real browser without a window, asked through its debugging pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser that has no network: every request that is no file is noted in ``requests``."""

    def __init__(self, program: str, profile: Path) -> None:
        here, its_output = os.pipe()
        its_input, self._write = os.pipe()
        self._read = os.fdopen(here, "rb", buffering=0)
        words = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        # The pipe's ends must be the descriptors 3 and 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{its_input} 4>&{its_output} 2>/dev/null', "bash", *words]
        self._process = subprocess.Popen(shell, pass_fds=(its_input, its_output), stdout=subprocess.DEVNULL)
        os.close(its_input)
        os.close(its_output)
        self._number, self._left, self._session = 0, b"", None
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        self._read.close()

    def open(self, path: Path, fragment: str = "") -> None:
        self._ask("Page.navigate", url="about:blank")
        self._ask("Page.navigate", url=path.as_uri() + fragment)

    def run(self, script: str) -> Any:
        """Return what an expression gives; it may be a promise."""
        found = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 30) -> Any:
        """Return what an expression gives as soon as that is something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"not in {seconds} s: {script}; {self.problems}")

    def _ask(self, method: str, **values: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _next(self) -> Any:
        while b"\0" not in self._left:
            more = self._read.read(1 << 20)
            assert more, "the browser has ended"
            self._left += more
        text, _, self._left = self._left.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            url = told["request"]["url"]
            self.requests += [] if url.startswith(("file:", "about:", "data:")) else [url]
        elif event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.problems.append(told["entry"]["text"])
        elif event.get("method") == "Page.javascriptDialogOpening":
            self.problems.append("a dialog")
