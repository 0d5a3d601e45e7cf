"""What the processes of a run said in their metrics, read back from `scrapes.txt`.

The file consists of blocks: a line `# scrape TIME PROCESS ROLE`, and the process's metrics in the text format of
Prometheus, or a selection of them with their `# HELP` and `# TYPE`. An incomplete last line is ignored. A block is only
parsed where it is asked for: a run has half a million lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

SCRAPES = "scrapes.txt"
HEAD = "# scrape "
_ABOUT = re.compile(r"^# (?:HELP|TYPE) (\S+)", re.M)


class Scrape(NamedTuple):
    time: float
    process: str
    role: str
    text: str
    place: str
    """For messages."""

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
    """All scrapes of a run, none if it has no such file. Raises ValueError with file and line for a block that is
    none.
    """
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
