"""Renders metrics in Prometheus' text format, in short turns of the event loop.

A process with many series (a sharder of a thousand rings has 25 000) would else block its loop for a quarter of a
second with every scrape. So the samples of a family are read one by one, and may be made only then. Guaranteed: the
text is that of `prometheus_client.generate_latest`; other tasks run after each `SAMPLES` lines. Not guaranteed: that
all samples are of the same instant, and short turns if a collector takes long to return one family.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import generate_latest
from prometheus_client.core import Metric

SAMPLES = 200
LEVEL = 1
"""Of compression: a page becomes about twenty times smaller, for a few milliseconds."""
_HEADER = 2
"""Lines of a family before its samples."""
_GZIP = 16 + zlib.MAX_WBITS


async def render(families: Iterable[Metric], *, gzip: bool = False) -> bytes:
    """The page of these families; `gzip`: compressed."""
    compressor = zlib.compressobj(LEVEL, wbits=_GZIP) if gzip else None
    parts: list[bytes] = []
    lines = 0
    for family in families:
        samples, header = iter(family.samples), True
        while (piece := list(islice(samples, SAMPLES))) or header:
            family.samples = piece
            text = generate_latest(_Single(family))
            part = text if header else text.split(b"\n", _HEADER)[_HEADER]
            header = False
            parts.append(compressor.compress(part) if compressor else part)
            lines += len(piece) + 1
            if lines >= SAMPLES:
                lines = 0
                await asyncio.sleep(0)
    if compressor:
        parts.append(compressor.flush())
    return b"".join(parts)


class _Single:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
