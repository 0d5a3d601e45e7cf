"""A headless browser, controlled through the WebDriver protocol, with just enough features to check a page."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DRIVER = ("chromedriver", "chromium-driver")
BROWSER = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str:
    """Returns which of the programs is missing; "" if both are installed."""
    if not any(map(shutil.which, BROWSER)):
        return "no chromium"
    return "" if any(map(shutil.which, DRIVER)) else "no chromedriver"


class Browser:
    def __init__(self, address: str) -> None:
        self._address = address
        flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,700"]
        options = {"binary": next(filter(None, map(shutil.which, BROWSER))), "args": flags}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = self._post("/session", {"capabilities": wanted}, session=False)["sessionId"]

    def open(self, url: str) -> None:
        self._post("/url", {"url": url})

    def run(self, script: str) -> Any:
        """Returns the result of a script in the page."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def prefer(self, scheme: str) -> None:
        """As if the user had chosen `light` or `dark` for all pages."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._post("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": media})

    def until(self, condition: str, within: float = 20.0) -> None:
        deadline = time.monotonic() + within
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < deadline, self.run("return document.body.innerText")
            time.sleep(0.1)

    def complaints(self) -> list[str]:
        """Returns what the browser reports about the page: errors, and resources that the page may not load."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int) -> None:
        self._post("/window/rect", {"width": width, "height": height})

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._call("GET", f"/session/{self._session}/screenshot")))

    def close(self) -> None:
        self._call("DELETE", f"/session/{self._session}")

    def _post(self, path: str, body: dict[str, Any], *, session: bool = True) -> Any:
        return self._call("POST", f"/session/{self._session}{path}" if session else path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]


@contextmanager
def browser(port: int) -> Iterator[Browser]:
    driver = next(filter(None, map(shutil.which, DRIVER)))
    with subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 20
            while True:
                try:
                    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                        address + "/status", timeout=5
                    )
                    break
                except OSError:
                    assert time.monotonic() < deadline, "chromedriver does not answer"
                    time.sleep(0.1)
            opened = Browser(address)
            try:
                yield opened
            finally:
                opened.close()
        finally:
            process.terminate()
