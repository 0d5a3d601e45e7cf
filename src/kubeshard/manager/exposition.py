"""Renders metrics in Prometheus' text format, in short turns of the event loop.

A process with many series (a sharder of a thousand rings has 25 000) would else block its loop for a quarter of a
second with every scrape. Guaranteed: the text is that of `prometheus_client.generate_latest`; other tasks run after
each `SAMPLES` lines. Not guaranteed: that all families are of the same instant, and short turns if a collector takes
long to return one family.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import Metric

SAMPLES = 500
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
        samples = family.samples
        for start in range(0, max(len(samples), 1), SAMPLES):
            family.samples = samples[start : start + SAMPLES]
            text = generate_latest(_Single(family))
            part = text.split(b"\n", _HEADER)[_HEADER] if start else text
            parts.append(compressor.compress(part) if compressor else part)
            lines += len(family.samples) + 1
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
