"""The pages of several processes as one: `/healthz` and `/readyz` on one port, `/metrics` on another.

* `/healthz` says that the supervisor responds: what to do about a process that does not is its own business.
* `/readyz` has a check for each process: the pod is ready while all of them are.
* `/metrics` has the series of all processes, each with the label `process`, its number; a process that does not answer
  is left out. Who may read it, the processes decide: they get the request's credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kubeshard.manager.fast_metrics import Counts, render
from kubeshard.manager.health import Checks, ping
from kubeshard.manager.http import Listener, Page, Request, pages_app
from kubeshard.metrics.declared import declared
from kubeshard.runtime.transport import HttpRequest, HttpResponse, Transport, TransportError

LABEL = "process"
EXPORTED = "exported_process"
"""The label of a series that has one of that name already, as Prometheus calls it."""

SCRAPED_WITHIN = 8.0
"""Seconds within which a process has to show its metrics. Prometheus waits for ten."""


class SupervisorPages:
    """`connections` lead to the processes, by number; `unready` returns why one is not ready, or None."""

    def __init__(self, connections: Sequence[Transport], unready: Callable[[int], str | None]) -> None:
        self._connections = connections
        self._healthz = Checks("/healthz", {"ping": ping})
        checks = {f"process-{number}": partial(unready, number) for number in range(len(connections))}
        self._readyz = Checks("/readyz", checks)
        self._restarts = Counts(*declared("kubeshard_process_restarts_total"))
        for number in range(len(connections)):
            self._restarts.series(str(number))

    async def open(self, stack: AsyncExitStack, health: Listener, metrics: Listener, *, in_pod: bool) -> None:
        """Serves until the stack is closed. Raises ConfigurationError if it cannot."""
        await health.open(stack, pages_app(self._healthz.page, self._readyz.page), in_pod=in_pod)
        await metrics.open(stack, pages_app(self._metrics_page), in_pod=in_pod)

    def restarted(self, number: int) -> None:
        self._restarts.series(str(number)).value += 1

    def _metrics_page(self, request: Request) -> Awaitable[Page] | None:
        return self._metrics(request) if request.path == "/metrics" else None

    async def _metrics(self, request: Request) -> Page:
        headers = {"Authorization": request.authorization} if request.authorization else {}
        asked = HttpRequest("GET", "/metrics", headers, timeout=SCRAPED_WITHIN)
        answers = await asyncio.gather(*(answer_of(each, asked) for each in self._connections))
        for answer in answers:
            if answer is not None and answer.status != 200:
                return Page(answer.status, answer.body)
        texts = {str(number): answer.body.decode() for number, answer in enumerate(answers) if answer}
        families = [*self._restarts.collect(), *merged(texts)]
        body = await render(families, gzip=request.gzip)
        return Page(200, body, CONTENT_TYPE_LATEST, "gzip" if request.gzip else "")


async def answer_of(connection: Transport, request: HttpRequest) -> HttpResponse | None:
    """None if there is none in time."""
    try:
        return await connection.request(request)
    except TransportError:
        return None


def merged(pages: dict[str, str]) -> Iterator[Metric]:
    """The families of several pages, by process, in the text format."""
    families: dict[tuple[str, str], Metric] = {}
    for process, text in pages.items():
        for family in text_string_to_metric_families(text):
            samples = [_labelled(sample, process) for sample in family.samples]
            known = families.setdefault((family.name, family.type), family)
            known.samples = samples if known is family else [*known.samples, *samples]
    yield from families.values()


def _labelled(sample: Sample, process: str) -> Sample:
    labels = {EXPORTED if name == LABEL else name: value for name, value in sample.labels.items()}
    return sample._replace(labels={**labels, LABEL: process})
