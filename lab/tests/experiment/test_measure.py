"""`kubeshard measure`: the Go project's file of queries, its CSV byte for byte, and a verdict on each service level."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from fake_prometheus import FakePrometheus, failure, fake_prometheus, matrix, scalar, vector
from prometheus_client.parser import text_string_to_metric_families
from recorded import BEGAN, Recorded

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import ObjectMeta
from kubeshard.metrics.declared import defined
from kubeshard.runtime.transport import HttpRequest
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver.front.monitoring import Metrics
from kubeshard_apiserver.front.requests import Request as HttpAsked
from kubeshard_apiserver.server import ApiServer
from kubeshard_lab.cli.measure import parse_time
from kubeshard_lab.examples.webhosting.api import Website
from kubeshard_lab.examples.webhosting.operator import StateMetrics
from kubeshard_lab.experiment.measuring.answers import Point, Series, csv_lines, number
from kubeshard_lab.experiment.measuring.prometheus import Prometheus, Unusable
from kubeshard_lab.experiment.measuring.queries import Query, Window, parse_queries
from kubeshard_lab.experiment.openmetrics import write
from kubeshard_lab.experiment.recording import Request

NOW = 1_700_000_000.0


@pytest.fixture
async def server() -> AsyncIterator[FakePrometheus]:
    async with fake_prometheus() as fake:
        yield fake


@pytest.fixture
def queries(tmp_path: Path) -> Any:
    """Writes a file of queries, and returns its path."""

    def written(*queries: dict[str, Any]) -> str:
        path = tmp_path / "queries.yaml"
        path.write_text(yaml.safe_dump({"queries": list(queries)}))
        return str(path)

    return written


async def run(*arguments: str, input: str | None = None) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, ["measure", *arguments], input=input)


WINDOW = ("--start", "1700000000", "--end", "1700000900")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004587619999999999, "0.004587619999999999"),
        (5.0, "5"),
        (-0.0, "-0"),
        (1e-7, "0.0000001"),
        (1e21, "1000000000000000000000"),
        (1.5e300, "15" + "0" * 299),
        (123456789.125, "123456789.125"),
        (100.0, "100"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_a_value_has_all_its_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a,b", '"a,b"'),
        ('say "a"', '"say ""a"""'),
        ("a\nb", '"a\nb"'),
        ("a\rb", '"a\rb"'),
        (" a", '" a"'),
        ("\ta", '"\ta"'),
        ("\xa0a", '"\xa0a"'),
        ("\x1ca", "\x1ca"),
        ("a ", "a "),
        ("\\.", '"\\."'),
        ("'", "'"),
    ],
)
def test_a_field_is_quoted_where_go_quotes_it(field: str, text: str) -> None:
    (_, row) = csv_lines([Series({"a": field}, [Point(1.0, 2.0)])])
    assert row == f"1,2,{text}\n"


def test_rows_are_in_the_order_of_the_answer_and_columns_in_that_of_labels() -> None:
    series = [
        Series({"__name__": "up", "pod": "b", "Zone": "z"}, [Point(15.9, 1.0), Point(30.0, 0.5)]),
        Series({"__name__": "up", "app": "a"}, [Point(15.0, 1.0)]),
    ]
    assert "".join(csv_lines(series)) == "ts,value,Zone,app,pod\n15,1,z,,b\n30,0.5,z,,b\n15,1,,a,\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14T22:13:20.5Z", NOW + 0.5),
        ("-15m", NOW - 900),
        ("1h30m", NOW + 5400),
        ("-1.5s", NOW - 1.5),
        ("0", NOW),
        ("1665825136", 1665825136),
    ],
)
def test_a_time_is_rfc_3339_or_relative_or_unix_seconds(text: str, expected: float) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["yesterday", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "5x", ""]
)
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write it like"):
        parse_time(text, NOW)


async def test_a_range_query_is_asked_with_its_window_and_written_as_csv(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.answers["up"] = matrix(({"__name__": "up", "pod": "a"}, [(NOW, "1"), (NOW + 15, "0.25")]))
    file = queries({"name": "up", "query": "up"})
    done = await run(
        file, *WINDOW, "-o", f"{tmp_path}/out", "--output-prefix", "a-", "--prometheus-url", server.url
    )
    assert done.exit_code == 0, done.output
    assert (
        tmp_path / "out" / "a-up.csv"
    ).read_bytes() == b"ts,value,pod\n1700000000,1,a\n1700000015,0.25,a\n"
    assert server.asked == [
        (
            "/api/v1/query_range",
            {"query": "up", "start": "1700000000", "end": "1700000900", "step": "15", "timeout": "10s"},
        )
    ]
    assert "no service levels" in done.output


async def test_an_instant_query_is_asked_for_the_end_over_the_range(
    server: FakePrometheus, queries: Any
) -> None:
    server.answers["rate(a[900000ms])"] = vector(({"verb": "GET"}, (NOW + 900.5, "2")))
    file = queries({"name": "rate", "type": "instant", "query": "rate(a[$__range])"})
    done = await run(file, *WINDOW, "-o", "-", "--prometheus-url", server.url + "/prefix/")
    assert done.stdout == "# rate.csv\nts,value,verb\n1700000900,2,GET\n"
    ((path, parameters),) = server.asked
    assert (path, parameters["time"]) == ("/prefix/api/v1/query", "1700000900")


async def test_a_file_may_come_from_standard_input(server: FakePrometheus) -> None:
    server.answers["up"] = vector(({}, (NOW, "1")))
    done = await run(
        "-",
        *("-o", "-", "--prometheus-url", server.url),
        input="queries: [{name: up, type: instant, query: up}]",
    )
    assert done.stdout == "# up.csv\nts,value\n1700000000,1\n"


async def test_a_level_that_is_missed_ends_with_1_and_is_named_with_every_violation(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.answers["queue"] = vector(
        ({"name": "website"}, (NOW, "1.5")),
        ({"name": "other"}, (NOW, "0.5")),
        ({"name": "idle"}, (NOW, "NaN")),
    )
    server.answers["reconcile"] = vector(({}, (NOW, "5")))
    file = queries(
        {"name": "queue", "type": "instant", "query": "queue", "slo": 1},
        {"name": "reconcile", "type": "instant", "query": "reconcile", "slo": 5},
    )
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert done.exit_code == 1
    assert done.stderr == "Error: not kept: queue (1.5 > 1)\n"
    assert 'queue: NOT KEPT, 1.5 > 1\n  1.5 at 2023-11-14T22:13:20Z {name="website"}\n' in done.stdout
    assert "reconcile: kept, 5 <= 5\n" in done.stdout
    assert (tmp_path / "queue.csv").read_text().count("\n") == 4


async def test_levels_that_are_kept_end_with_0(server: FakePrometheus, queries: Any, tmp_path: Path) -> None:
    server.answers["queue"] = matrix(({}, [(NOW, "NaN"), (NOW + 15, "0.5")]))
    file = queries({"name": "queue", "query": "queue", "slo": 1})
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "1 service level kept")


async def test_without_data_a_query_fails_unless_it_is_optional_and_others_are_asked(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.answers |= {"a": matrix(), "b": matrix(), "c": matrix(({}, [(NOW, "1")]))}
    file = queries(
        {"name": "a", "query": "a"},
        {"name": "b", "query": "b", "optional": True},
        {"name": "c", "query": "c"},
    )
    done = await run(file, *WINDOW, "-o", f"{tmp_path}/out", "--prometheus-url", server.url)
    assert done.exit_code == 1
    assert done.stderr == "Error: not measured: a (no data)\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["c.csv"]


async def test_a_level_of_which_nothing_was_measured_is_not_kept(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    """A quantile of no observations is not a number."""
    server.answers["queue"] = vector(({}, (NOW, "NaN")))
    file = queries({"name": "queue", "type": "instant", "query": "queue", "slo": 1})
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert (done.exit_code, done.stderr) == (1, "Error: not measured: queue (no data)\n")


async def test_what_the_server_says_of_a_query_is_said_and_others_are_asked(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.answers |= {
        "sum(": failure("bad_data", "parse error: unclosed left\nparenthesis"),
        "1": scalar("1"),
        "h": {
            "status": "success",
            "data": {"resultType": "matrix", "result": [{"metric": {}, "histograms": [[1, {"count": "1"}]]}]},
        },
        "up": {**matrix(({}, [(NOW, "1")])), "warnings": ["a store is away"]},
    }
    file = queries(
        {"name": "bad", "query": "sum("},
        {"name": "one", "type": "instant", "query": "1"},
        {"name": "native", "query": "h"},
        {"name": "up", "query": "up"},
    )
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert done.exit_code == 1
    assert "up: warning: a store is away" in done.stdout
    (line,) = done.stderr.splitlines()
    assert "bad (bad_data: parse error: unclosed left" in line
    assert "one (the answer is a scalar, a query of type instant needs a vector)" in line
    assert "native (the answer consists of native histograms" in line
    assert (tmp_path / "up.csv").exists()


async def test_credentials_are_sent_as_a_token_or_as_user_and_password(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.answers["up"] = matrix(({}, [(NOW, "1")]))
    (tmp_path / "token").write_text("secret\n")
    file = queries({"name": "up", "query": "up"})
    options = (*WINDOW, "-o", "-")
    await run(file, *options, "--prometheus-url", server.url, "--bearer-token-file", f"{tmp_path}/token")
    with_user = server.url.replace("//", "//me:p%40ss@")
    done = await run(file, *options, "--prometheus-url", with_user)
    assert server.authorizations == ["Bearer secret", "Basic bWU6cEBzcw=="]
    assert "p%40ss" not in done.output


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (401, "refuses the request (401): check --bearer-token-file"),
        (404, "not as a Prometheus does: check --prom"),
    ],
)
async def test_a_server_that_is_no_prometheus_or_refuses_is_one_line(
    status: int, line: str, server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.status, server.answers["up"] = status, "<html>"
    done = await run(
        queries({"name": "up", "query": "up"}), "-o", str(tmp_path), "--prometheus-url", server.url
    )
    assert done.exit_code == 1
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_a_server_that_is_not_reached_is_not_asked_the_other_queries() -> None:
    async with Prometheus("http://127.0.0.1:1", REAL_WORLD.connect) as prometheus:
        with pytest.raises(Unusable, match=r"cannot reach http://127\.0\.0\.1:1 "):
            await prometheus.ask(Query("up", "up"), Window(0, 1, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--start", "soon"), "--start: 'soon' is not a time: write it like"),
        (("--start", "5m"), "--start: must be before --end"),
        (("--step", "0"), "--step: must be more than 0"),
        (("--step", "often"), "--step: 'often' is not a duration"),
    ],
)
async def test_a_wrong_option_is_one_that_is_named(
    options: tuple[str, ...], message: str, queries: Any
) -> None:
    done = await run(queries({"name": "up", "query": "up"}), *options)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prometheus-url", "localhost:9090"), "is not the URL of a Prometheus: expected http"),
        (("--prometheus-url", "http://a:b"), "is not a URL: Port could not be cast"),
        (("--bearer-token-file", "nowhere"), "nowhere: No such file"),
        (("--ca-file", "nowhere"), "nowhere: No such file"),
    ],
)
async def test_a_setting_that_cannot_work_says_so(
    options: tuple[str, ...], message: str, queries: Any
) -> None:
    done = await run(queries({"name": "up", "query": "up"}), *options)
    assert isinstance(done.exception, ConfigurationError)
    assert message in str(done.exception)


async def test_certificates_that_are_none_say_so(queries: Any, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("none")
    done = await run(
        queries({"name": "up", "query": "up"}),
        *("--ca-file", f"{tmp_path}/ca"),
        "--prometheus-url",
        "https://a",
    )
    assert "not a PEM certificate" in str(done.exception)


async def test_a_folder_that_cannot_be_written_says_so(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    server.answers["up"] = matrix(({}, [(NOW, "1")]))
    file = queries({"name": "up", "query": "up"})
    done = await run(file, *WINDOW, "-o", file, "--prometheus-url", server.url)
    assert (done.exit_code, "File exists" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "no list of queries"),
        ({"queries": []}, "no list of queries"),
        ({"queries": {}}, "no list of queries"),
        ([], "no list of queries"),
        ({"queries": [1]}, r"queries\[0\]: Expected `object`"),
        ({"queries": [{"name": "a"}]}, r"queries\[0\]: .*missing required field `query`"),
        ({"queries": [{"name": "", "query": "b"}]}, r"queries\[0\]: name and query must not be empty"),
        (
            {"queries": [{"name": "a", "query": "b", "type": "once"}]},
            r"queries\[0\]: Invalid enum value 'once'",
        ),
        ({"queries": [{"name": "a", "query": "b", "slo": "high"}]}, r"queries\[0\]: .*float.*slo"),
        ({"queries": [{"name": "a", "query": "b"}] * 2}, "2 queries have the name a"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"q.yaml: {message}"):
        parse_queries([] if document is None else [document], "q.yaml")


async def test_an_unknown_field_is_ignored_and_said(server: FakePrometheus, queries: Any) -> None:
    """The Go project's tool ignores it too, and so a level that was misspelt never fails."""
    server.answers["up"] = matrix(({}, [(NOW, "1")]))
    file = queries({"name": "up", "query": "up", "slos": 1})
    done = await run(file, *WINDOW, "-o", "-", "--prometheus-url", server.url)
    assert f"Warning: {file}: query up: field slos is unknown and ignored; did you mean slo?" in done.stderr


async def test_a_name_that_is_neither_file_nor_scenario_is_refused_with_the_scenarios() -> None:
    done = await run("basics")
    assert isinstance(done.exception, ConfigurationError)
    assert "basics: neither a file nor a scenario: those are basic, scale-out, " in str(done.exception)


@pytest.mark.parametrize("scenario", ["basic", "scale-out"])
async def test_the_queries_of_a_scenario_can_be_printed_as_a_file(scenario: str) -> None:
    done = await run(scenario, "--print")
    found = parse_queries([yaml.safe_load(done.stdout)], "printed")
    assert not found.unknown
    levels = {
        query.name: query.slo for query in found.queries if query.slo is not None and not query.optional
    }
    assert levels == ({} if scenario == "scale-out" else {"latency-queue": 1, "latency-reconciliation": 5})


REFERENCES_FILES = {
    "experiment": {
        "controller_runtime_reconcile_total": {"controller", "result"},
        "experiment_website_reconciliation_duration_seconds_bucket": {"le"},
    },
    "operator": {
        "kube_website_info": set(),
        "workqueue_adds_total": {"name"},
        "workqueue_queue_duration_seconds_bucket": {"name", "le"},
    },
    "server": {
        "apiserver_request_duration_seconds_bucket": {"resource", "verb", "scope", "subresource", "le"}
    },
}
"""The series, with the labels that are matched or summed by, of the query files that the Go project published, and of
its documentation. Beside them, `container_*` comes from the kubelet, and `go_memory_classes_*` from Go's runtime.
"""


def names_and_labels(families: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("sample", REFERENCES_FILES["operator"])
def test_the_operator_has_the_series_of_the_published_query_files(sample: str) -> None:
    if sample.startswith("kube_"):
        websites = [Website(metadata=ObjectMeta(name="a", namespace="b"))]
        known = names_and_labels(StateMetrics(lambda: websites, lambda: ()).collect())
        assert sample in known
        return
    assert REFERENCES_FILES["operator"][sample] - {"le"} <= set(defined(sample).labels)


@pytest.mark.parametrize("sample", REFERENCES_FILES["experiment"])
def test_a_recording_has_the_series_of_the_published_query_files(sample: str, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.generations(0.5)
    recorded.add(Request("create", "ns", "a", BEGAN, BEGAN, BEGAN, "ok"))
    recorded.close()
    known = names_and_labels(text_string_to_metric_families(write(tmp_path).read_text()))
    assert REFERENCES_FILES["experiment"][sample] <= known[sample]


@pytest.mark.parametrize("sample", REFERENCES_FILES["server"])
async def test_the_embedded_server_has_the_series_of_the_published_query_files(sample: str) -> None:
    metrics = Metrics(ApiServer(world=REAL_WORLD))
    target = "/api/v1/namespaces/a/configmaps"
    metrics.answered(HttpAsked(HttpRequest("POST", target, {})), 201, 0.1)
    assert REFERENCES_FILES["server"][sample] <= names_and_labels(metrics.collect())[sample]
