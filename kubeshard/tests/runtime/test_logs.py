from __future__ import annotations

import asyncio
import io
import json
import logging
import pickle
import queue
import re
import threading
from collections.abc import Iterator
from logging.handlers import QueueHandler
from typing import Any

import pytest

from kubeshard.core import objects
from kubeshard.runtime import logs
from kubeshard.runtime.logs import context, error_line, get_logger, in_every_record, parse_levels, setup


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:], root.level = handlers, level
    logging.getLogger("kubeshard.cache").setLevel(logging.NOTSET)


def json_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_text_line_has_message_and_fields(lines: io.StringIO) -> None:
    setup("info", "text", stream=lines)
    get_logger("kubeshard.sharder").info(
        "Assigned object", object=objects.Key("ns", "a"), shard="b c", moves=3
    )
    assert lines.getvalue().endswith(
        'Z INFO kubeshard.sharder: Assigned object object=ns/a shard="b c" moves=3\n'
    )


def test_a_json_line_has_the_keys_of_controller_runtime(lines: io.StringIO) -> None:
    setup("info", "json", stream=lines)
    get_logger("kubeshard.sharder").error("Reconcile failed", error=KeyError("x"), attempt=2)
    (line,) = json_lines(lines)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "error",
        "logger": "kubeshard.sharder",
        "msg": "Reconcile failed",
        "error": "KeyError: 'x'",
        "attempt": 2,
    }


def test_bound_and_context_fields_are_added_to_every_line(lines: io.StringIO) -> None:
    setup("info", "json", stream=lines)
    log = get_logger("kubeshard.t").bind(ring="r")
    with context(controller="website"):
        log.info("inside", object="a")
    log.info("outside")
    inside, outside = json_lines(lines)
    assert (inside["ring"], inside["controller"], inside["object"]) == ("r", "website", "a")
    assert outside["ring"] == "r"
    assert "controller" not in outside


def test_fields_of_the_process_are_in_the_lines_of_all_threads(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_of_process", {})
    setup("info", "json", stream=lines)
    in_every_record(process=1)
    log = get_logger("kubeshard.t")
    with context(object="a"):
        log.info("here")
        thread = threading.Thread(target=log.info, args=("there",))
        thread.start()
        thread.join()
    here, there = json_lines(lines)
    assert (here["process"], here["object"]) == (1, "a")
    assert there["process"] == 1
    assert "object" not in there


async def test_context_fields_belong_to_the_task(lines: io.StringIO) -> None:
    setup("info", "json", stream=lines)
    log = get_logger("kubeshard.t")

    async def work(name: str) -> None:
        with context(object=name):
            await asyncio.sleep(0)
            log.info(name)

    await asyncio.gather(work("a"), work("b"))
    assert [(line["msg"], line["object"]) for line in json_lines(lines)] == [("a", "a"), ("b", "b")]


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_record_is_one_line_whatever_it_contains(lines: io.StringIO, format: Any) -> None:
    setup("info", format, stream=lines)
    evil = 'x\n2026-01-01T00:00:00Z INFO kubeshard: forged\r\x1b[31m"'
    get_logger("kubeshard.t").error(evil, object=evil, error=ValueError(evil))
    assert lines.getvalue().count("\n") == 1
    assert "\x1b" not in lines.getvalue()
    assert "\r" not in lines.getvalue()


def test_the_text_of_an_error_is_escaped_once(lines: io.StringIO) -> None:
    setup("info", "text", stream=lines)
    get_logger("kubeshard.t").error("Timer failed", error=ValueError("a\nb\x9bc"))
    assert lines.getvalue().endswith('Timer failed error="ValueError: a\\nb\\u009bc"\n')
    setup("info", "json", stream=lines)
    get_logger("kubeshard.t").error("Timer failed", error=ValueError("a\nb\x9bc"))
    assert "\x9b" not in lines.getvalue()
    assert json.loads(lines.getvalue().splitlines()[-1])["error"] == "ValueError: a\nb\x9bc"


def test_a_failure_is_one_line_and_its_trace_comes_at_debug_level(lines: io.StringIO) -> None:
    def fail(log_level: str) -> dict[str, Any]:
        stream = io.StringIO()
        setup(log_level, "json", stream=stream)
        try:
            raise ValueError("no")
        except ValueError as error:
            get_logger("kubeshard.t").error("Failed", error=error)
        return json_lines(stream)[0]

    assert "stacktrace" not in fail("info")
    assert "ValueError: no" in fail("debug")["stacktrace"]


def test_a_crash_has_its_trace_at_every_level(lines: io.StringIO) -> None:
    setup("error", "json", stream=lines)
    try:
        raise ValueError("no")
    except ValueError as error:
        get_logger("kubeshard.t").crash("Reconciler crashed", error)
    assert "test_logs.py" in json_lines(lines)[0]["stacktrace"]


def test_credentials_are_not_written(lines: io.StringIO) -> None:
    setup("info", "text", stream=lines)
    get_logger("kubeshard.t").info("Request", token="s3cret", Authorization="Bearer s3cret", body=b"s3cret")
    assert "s3cret" not in lines.getvalue()
    assert 'body="<6 bytes>"' in lines.getvalue()


def test_long_values_are_cut(lines: io.StringIO) -> None:
    setup("info", "json", stream=lines)
    get_logger("kubeshard.t").info("Patch", body="x" * 100_000)
    assert len(json_lines(lines)[0]["body"]) < 2100


def test_records_of_other_libraries_come_out_in_the_same_format(lines: io.StringIO) -> None:
    setup("info", "json", stream=lines)
    logging.getLogger("other").warning("slow: %s", "x")
    (line,) = json_lines(lines)
    assert (line["logger"], line["msg"], line["level"]) == ("other", "slow: x", "warn")


def test_levels_are_set_per_logger(lines: io.StringIO) -> None:
    setup("warning,kubeshard.cache=debug", "json", stream=lines)
    get_logger("kubeshard.cache").debug("cache")
    get_logger("kubeshard.sharder").info("sharder")
    assert [line["msg"] for line in json_lines(lines)] == ["cache"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown log level 'loud'"):
        parse_levels("info,kubeshard.cache=loud")


def test_setup_replaces_what_an_earlier_call_set_up(lines: io.StringIO) -> None:
    setup("info", "json", stream=lines)
    setup("info", "json", stream=lines)
    get_logger("kubeshard.t").info("once")
    assert len(json_lines(lines)) == 1


def test_the_error_line_of_a_group_names_its_members() -> None:
    group = ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    assert error_line(group) == "ValueError: a; KeyError: 'b'"


def test_under_any_other_formatter_a_record_says_what_it_is_about(lines: io.StringIO) -> None:
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logging.Formatter('{"at":"%(filename)s","msg":"%(message)s"}'))
    logging.getLogger().addHandler(handler)
    with context(controller="page", object=objects.Key("default", "x"), controller_kind="Page"):
        get_logger("kubeshard.t").error("Reconcile failed", error=KeyError("a\nb"), token="hunter2")
    assert lines.getvalue() == (
        '{"at":"test_logs.py","msg":"Reconcile failed controller=page object=default/x '
        'error="KeyError: \'a\\\\nb\'" token=<hidden>"}\n'
    )


def test_filters_and_tests_find_the_constant_message_and_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("kubeshard.t").warning("Reconcile failed", error=KeyError("x"))
    (record,) = caplog.records
    assert record.msg == "Reconcile failed"
    assert repr(record.__dict__["fields"]["error"]) == "KeyError('x')"


def test_a_record_from_a_queue_says_each_fact_once(lines: io.StringIO) -> None:
    """Queues and sockets hand on a record whose message is rendered."""
    setup("info", stream=lines)
    caught: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    sender = QueueHandler(caught)
    logger = logging.getLogger("kubeshard.t")
    logger.addHandler(sender)
    logger.propagate = False
    try:
        get_logger("kubeshard.t").info("Assigned object", shard="b")
    finally:
        logger.removeHandler(sender)
        logger.propagate = True
    logging.getLogger().handle(caught.get())
    assert lines.getvalue().endswith("INFO kubeshard.t: Assigned object shard=b\n")


def test_a_record_can_be_pickled_whatever_its_fields_are() -> None:
    caught: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = caught.append  # type: ignore[method-assign]
    logger = logging.getLogger("kubeshard.t")
    logger.addHandler(handler)
    try:
        get_logger("kubeshard.t").warning("Assigned object", about=threading.Lock)
    finally:
        logger.removeHandler(handler)
    assert str(pickle.loads(pickle.dumps(caught[0].msg))).startswith("Assigned object about=")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_text_line_says_what_it_is_about_once_and_ends_with_a_short_id(lines: io.StringIO) -> None:
    setup("info", "text", stream=lines)
    about = {"controller": "page", "object": objects.Key("ns", "a"), "reconcile_id": "0123456789abcdef"}
    get_logger("kubeshard.controller.page").bind(**about).info("Rendered", size=3, seconds=0.0123456)
    assert lines.getvalue().endswith(
        "Z INFO kubeshard.controller.page: Rendered object=ns/a size=3 seconds=0.0123 reconcile_id=01234567\n"
    )


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "xterm")])
def test_a_terminal_shows_the_time_of_day_and_coloured_levels_unless_told_not_to(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    setup("info", "text", stream=(screen := Screen()))
    get_logger("kubeshard.t").info("Fine")
    get_logger("kubeshard.t").warning("Careful\x1b[31m")
    fine, careful = screen.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO    kubeshard\.t: Fine", fine)
    level = "\x1b[33mWARNING\x1b[0m" if value == "xterm" else "WARNING"
    assert careful[13:] == f"{level} kubeshard.t: Careful\\x1b[31m"
