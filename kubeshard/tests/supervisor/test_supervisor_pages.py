"""The pages of several processes as one."""

from __future__ import annotations

import gzip
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kubeshard.manager.fast_metrics import Counts, Durations, Levels, render
from kubeshard.manager.http import Request
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportTimeout
from kubeshard.supervisor.pages import SupervisorPages, merged

ADDS = Counts("adds_total", "Keys added.", ["queue"])
DEPTH = Levels("depth", "Keys that wait.", [])
WAITS = Durations("waits_seconds", "How long.", ["process"], [0.5])


async def page_of(adds: int) -> str:
    ADDS.series("a").value = adds
    DEPTH.series().value = adds
    WAITS.series("build").observe(0.1)
    return (await render([*ADDS.collect(), *DEPTH.collect(), *WAITS.collect()])).decode()


class Answers:
    """A process that answers so, if it does."""

    def __init__(self, status: int = 0, body: str = "") -> None:
        self.answer = HttpResponse(status, {}, body.encode())
        self.asked: list[HttpRequest] = []

    async def request(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        if not self.answer.status:
            raise TransportTimeout("late")
        return self.answer


async def shown(*processes: Answers, **request: Any) -> tuple[int, str]:
    connections: Any = processes
    pages = SupervisorPages(connections, lambda number: None)
    answer = pages._metrics_page(Request("/metrics", "", **request))
    assert answer is not None
    page = await answer
    assert isinstance(page.body, bytes)
    body = gzip.decompress(page.body) if page.encoding == "gzip" else page.body
    return page.status, body.decode()


async def test_every_series_of_every_process_is_shown_once_in_one_family_with_the_processs_number() -> None:
    pages = {"0": await page_of(3), "1": await page_of(5)}
    families = {family.name: family for family in merged(pages)}
    assert [(sample.labels, sample.value) for sample in families["adds"].samples] == [
        ({"queue": "a", "process": "0"}, 3),
        ({"queue": "a", "process": "1"}, 5),
    ]
    assert {sample.labels["exported_process"] for sample in families["waits_seconds"].samples} == {"build"}
    alone = {family.name: family for family in text_string_to_metric_families(pages["0"])}
    for name, family in families.items():
        assert len(family.samples) == 2 * len(alone[name].samples)
        assert (family.type, family.documentation) == (alone[name].type, alone[name].documentation)


async def test_a_process_that_does_not_answer_is_left_out_of_the_metrics() -> None:
    status, text = await shown(Answers(), Answers(200, await page_of(4)), gzip=True)
    assert status == 200
    assert 'adds_total{process="1",queue="a"} 4.0' in text
    assert text.count("adds_total{") == 1
    assert 'kubeshard_process_restarts_total{process="0"} 0.0' in text


async def test_who_may_read_the_metrics_the_processes_decide() -> None:
    first, second = Answers(200, await page_of(1)), Answers(401, "Unauthorized\n")
    assert await shown(first, second, authorization="Bearer abc") == (401, "Unauthorized\n")
    assert [each.asked[0].headers["Authorization"] for each in (first, second)] == ["Bearer abc"] * 2
