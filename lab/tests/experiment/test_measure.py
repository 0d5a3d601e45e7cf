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

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.cli.measure import Series, csv_lines, number, parse_queries, parse_time

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
    (_, row) = csv_lines([Series({"a": field}, [(1.0, "2")])])
    assert row == f"1,2,{text}\n"


def test_rows_are_in_the_order_of_the_answer_and_columns_in_that_of_labels() -> None:
    series = [
        Series({"__name__": "up", "pod": "b", "Zone": "z"}, [(15.9, "1"), (30.0, "0.5")]),
        Series({"__name__": "up", "app": "a"}, [(15.0, "1")]),
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
    assert done.stderr == ("queue: 1.5 at 1700000000 {'name': 'website'}\nError: queue: not kept: 1.5 > 1\n")
    assert (tmp_path / "queue.csv").read_text().count("\n") == 4


async def test_levels_that_are_kept_end_with_0(server: FakePrometheus, queries: Any, tmp_path: Path) -> None:
    server.answers["queue"] = matrix(({}, [(NOW, "NaN"), (NOW + 15, "0.5")]))
    file = queries({"name": "queue", "query": "queue", "slo": 1})
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert (done.exit_code, done.output) == (0, "")


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
    assert done.stderr == "Error: a: no data\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["c.csv"]


async def test_a_level_of_which_nothing_was_measured_is_not_kept(
    server: FakePrometheus, queries: Any, tmp_path: Path
) -> None:
    """A quantile of no observations is not a number."""
    server.answers["queue"] = vector(({}, (NOW, "NaN")))
    file = queries({"name": "queue", "type": "instant", "query": "queue", "slo": 1})
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert (done.exit_code, done.stderr) == (1, "Error: queue: no data\n")


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
        "up": matrix(({}, [(NOW, "1")])),
    }
    file = queries(
        {"name": "bad", "query": "sum("},
        {"name": "one", "type": "instant", "query": "1"},
        {"name": "native", "query": "h"},
        {"name": "up", "query": "up"},
    )
    done = await run(file, *WINDOW, "-o", str(tmp_path), "--prometheus-url", server.url)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "bad: bad_data: parse error: unclosed left" in line
    assert "one: a query of type instant needs a vector, not a scalar" in line
    assert "native: native histograms" in line
    assert (tmp_path / "up.csv").exists()


async def test_a_token_is_sent(server: FakePrometheus, queries: Any, tmp_path: Path) -> None:
    server.answers["up"] = matrix(({}, [(NOW, "1")]))
    (tmp_path / "token").write_text("secret\n")
    options = ("--prometheus-url", server.url, "--bearer-token-file", f"{tmp_path}/token")
    await run(queries({"name": "up", "query": "up"}), *WINDOW, "-o", "-", *options)
    assert server.authorizations == ["Bearer secret"]


async def test_a_server_that_is_no_prometheus_or_is_not_reached_is_one_line(
    server: FakePrometheus, queries: Any
) -> None:
    server.status, server.answers["up"] = 401, "<html>"
    file = queries({"name": "up", "query": "up"})
    for url, line in (
        (server.url, "the server answered 401 and not as a Prometheus does: check --prometheus-url"),
        ("http://127.0.0.1:1", "up: "),
    ):
        done = await run(file, "-o", "-", "--prometheus-url", url)
        assert done.exit_code == 1
        assert line in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--start", "soon"), "'soon' is not a time: write it like"),
        (("--start", "5m"), "--start must be before --end"),
        (("--step", "0"), "--step more than 0"),
        (("--step", "often"), "'often' is not a duration"),
        (("--bearer-token-file", "nowhere"), "nowhere"),
    ],
)
async def test_a_wrong_option_is_one_that_is_named(
    options: tuple[str, ...], message: str, queries: Any
) -> None:
    done = await run(queries({"name": "up", "query": "up"}), *options)
    assert done.exit_code == 2
    assert message in done.stderr


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
        ([], "no list of queries"),
        ({"queries": {}}, "queries: Expected `array`"),
        ({"queries": [1]}, "queries: Expected `object`"),
        ({"queries": [{"name": "a"}]}, "queries: .*missing required field `query`"),
        ({"queries": [{"name": "a", "query": "b", "slos": 1}]}, "queries: .*unknown field `slos`"),
        ({"queries": [{"name": "", "query": "b"}]}, "each query needs a text and a name of its own"),
        ({"queries": [{"name": "a", "query": "b", "type": "once"}]}, "queries: Invalid enum value 'once'"),
        ({"queries": [{"name": "a", "query": "b"}] * 2}, "each query needs .* 2 are called 'a'"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"q.yaml: {message}"):
        parse_queries([] if document is None else [document], "q.yaml")
