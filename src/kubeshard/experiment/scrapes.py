"""What the processes of a run said in their metrics, read back from `scrapes.txt`.

The file consists of blocks: a line `# scrape TIME PROCESS ROLE`, and the process's metrics in the text format of
Prometheus, or a selection of them with their `# HELP` and `# TYPE`. An incomplete last line is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

SCRAPES = "scrapes.txt"
HEAD = "# scrape "


class Scrape(NamedTuple):
    time: float
    process: str
    role: str
    families: Sequence[Metric]


def read_scrapes(folder: Path) -> Iterator[Scrape]:
    """All scrapes of a run, none if it has no such file. Raises ValueError with file and line for a block that is
    none.
    """
    path = folder / SCRAPES
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for number, head, body in _blocks(file):
            try:
                time, process, role = head.removeprefix(HEAD).split()
                yield Scrape(float(time), process, role, [*text_string_to_metric_families(body)])
            except ValueError as error:
                raise ValueError(f"{path}, block in line {number}: {error}") from None


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
