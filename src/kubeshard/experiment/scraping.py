"""Reads the metrics of an experiment's processes and appends them to `scrapes.txt`; the selection is sans I/O.

Each scrape is a line `# scrape <unix time> <process> <role>`, followed by the selected families as the process exposed
them, with their HELP and TYPE lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from kubeshard.experiment.scrapes import HEAD, SCRAPES
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError
from kubeshard.runtime.world import World

FAMILIES = (
    "workqueue_",
    "controller_runtime_",
    "controller_sharding_",
    "process_",
    "rest_client_",
    "apiserver_request_",
)
"""How the names of the selected families begin."""
_WITHIN = 4.0


def selected(exposition: str) -> Iterator[str]:
    """The lines of the selected families."""
    for line in exposition.splitlines():
        if line.startswith("# "):
            words = line.split(" ", 3)
            name = words[2] if len(words) > 2 and words[1] in ("HELP", "TYPE") else ""
        else:
            name = line
        if name.startswith(FAMILIES):
            yield line


class Scrapes:
    """Appends to the file in a run's folder."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / SCRAPES).open("w", encoding="utf-8")

    def add(self, time: float, process: str, role: str, exposition: str) -> None:
        self._file.write(f"{HEAD}{time:.3f} {process} {role}\n")
        self._file.writelines(f"{line}\n" for line in selected(exposition))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Scraper:
    """Reads metrics over HTTP. `token` is sent to those that serve HTTPS, whose certificates are not verified: they
    are processes of this experiment.
    """

    def __init__(self, world: World, token: str = "") -> None:
        self._world = world
        self._token = token
        self._transports: dict[str, Transport] = {}

    async def read(self, url: str) -> str | None:
        """What the process exposes; None if it does not answer."""
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        transport = self._transports.get(base)
        if transport is None:
            transport = self._transports[base] = self._world.connect(base, Tls(insecure=True))
        headers = {"Accept": "text/plain;version=0.0.4"}
        if self._token and parts.scheme == "https":
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            answer = await transport.request(HttpRequest("GET", parts.path, headers, timeout=_WITHIN))
        except TransportError:
            return None
        return answer.body.decode(errors="replace") if answer.status == 200 else None

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()
