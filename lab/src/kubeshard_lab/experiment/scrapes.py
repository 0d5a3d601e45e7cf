"""What the processes of a run say in their metrics: scraped, appended to `scrapes.txt`, and read back.

The file consists of blocks: a line `# scrape TIME PROCESS ROLE`, and the process's metrics in the text format of
Prometheus, or a selection of them with their `# HELP` and `# TYPE`. An incomplete last line is ignored. A block is only
parsed where it is asked for: a run has half a million lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError
from kubeshard.runtime.world import World

SCRAPES = "scrapes.txt"
HEAD = "# scrape "
_ABOUT = re.compile(r"^# (?:HELP|TYPE) (\S+)", re.M)


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


class Scrape(NamedTuple):
    time: float
    process: str
    role: str
    text: str
    place: str

    def parts(self) -> dict[str, str]:
        """The text of each family, by the name in its `# TYPE`."""
        found: dict[str, str] = {}
        heads = list(_ABOUT.finditer(self.text))
        ends = [*(head.start() for head in heads), len(self.text)][1:]
        for head, end in zip(heads, ends, strict=True):
            found[head[1]] = found.get(head[1], "") + self.text[head.start() : end]
        return found

    def parsed(self, part: str) -> list[Metric]:
        """The families of a part. Raises ValueError with file and line of the block if they are none."""
        try:
            return list(text_string_to_metric_families(part))
        except ValueError as error:
            raise ValueError(f"{self.place}: {error}") from None


def read_scrapes(folder: Path) -> Iterator[Scrape]:
    """None if there is no such file. Raises ValueError with file and line for a block that is none."""
    path = folder / SCRAPES
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for number, head, body in _blocks(file):
            place = f"{path}, block in line {number}"
            try:
                time, process, role = head.removeprefix(HEAD).split()
                yield Scrape(float(time), process, role, body, place)
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from None


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """(line of the head, head, the rest)"""
    begun, head, body = 0, "", list[str]()
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            break
        if line.startswith(HEAD):
            if begun:
                yield begun, head, "".join(body)
            begun, head, body = number, line, []
        elif begun:
            body.append(line)
    if begun:
        yield begun, head, "".join(body)


class Scraper:
    """`token` is for those that serve HTTPS: processes of this experiment, so nothing verifies them."""

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

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.close()


class Scrapes:
    def __init__(self, folder: Path) -> None:
        self._file = (folder / SCRAPES).open("w", encoding="utf-8")

    def add(self, time: float, process: str, role: str, exposition: str) -> None:
        self._file.write(f"{HEAD}{time:.3f} {process} {role}\n")
        self._file.writelines(f"{line}\n" for line in selected(exposition))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def selected(exposition: str) -> Iterator[str]:
    for line in exposition.splitlines():
        if line.startswith("# "):
            words = line.split(" ", 3)
            name = words[2] if len(words) > 2 and words[1] in ("HELP", "TYPE") else ""
        else:
            name = line
        if name.startswith(FAMILIES):
            yield line
