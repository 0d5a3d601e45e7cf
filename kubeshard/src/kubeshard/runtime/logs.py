"""Structured logs: a constant message, and fields with the details.

    log = get_logger("kubeshard.sharder")
    log.info("Assigned object", object=key, shard="a")
    with context(controller="website", object=key):        # added to every line of this task and its children
        log.error("Reconcile failed", error=error)

A thin layer over the standard library's `logging`, so records of other libraries are written in the same format, and
ours say everything under any other formatter too: `record.getMessage()` is the message with its fields, as in
`Reconcile failed controller=website object=default/a error="NotFound: ..."`. `record.msg` is the constant message,
for filters and tests, and `record.fields` has the fields. Guaranteed: one line per record whatever message and fields
contain (control characters are escaped, long values cut), an exception is one line unless the level is debug,
and fields named like credentials are not written. Not guaranteed: that a
secret inside a message or another field is detected.

The keys of a JSON line are those of controller-runtime: `level`, `ts`, `logger`, `msg`, `error`, `stacktrace`, and of
a reconcile `controller`, `controllerGroup`, `controllerKind`, the kind itself (`{"Website": {"name": ..., "namespace":
...}}`), `namespace`, `name`, `reconcileID`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from kubeshard.runtime import environ

__all__ = [
    "JsonFormatter",
    "Logger",
    "TextFormatter",
    "context",
    "error_line",
    "get_logger",
    "in_every_record",
    "parse_levels",
    "setup",
]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

MAX_VALUE = 2048
"""Characters of one field; the rest is cut."""

_SECRET = frozenset(
    {"authorization", "cookie", "token", "bearer_token", "password", "client_key", "private_key"}
)

_IN_JSON = {
    "reconcile_id": "reconcileID",
    "controller_group": "controllerGroup",
    "controller_kind": "controllerKind",
}
"""Names of fields that queries for controller-runtime's logs expect."""
_IN_JSON_ONLY = ("controller_group", "controller_kind")
_LEVEL_NAMES = {"warning": "warn", "critical": "fatal"}
"""The names of levels as zap writes them."""

_SHORT_ID = 8
"""Characters of a reconcile's id in text: enough to find its lines among those of a day."""

_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "31"}
"""Of levels, as SGR parameters. Most lines are of level info, and stay as they are."""

_QUIET = ("asyncio",)
"""Other libraries' loggers that log each start at info: warnings only, unless a level is set for them."""

_of_process: dict[str, Any] = {}
"""What is in each record of this process, in all of its threads."""

_context: ContextVar[Mapping[str, Any]] = ContextVar("kubeshard.log.context")
"""With what is in each record; nothing before the first `context` of the thread."""


class Message(str):
    """A constant message that is written with its fields where it is formatted without our formatters."""

    _fields: Mapping[str, Any]

    @classmethod
    def of(cls, text: str, fields: Mapping[str, Any]) -> Message:
        message = cls(text)
        message._fields = fields
        return message

    def __str__(self) -> str:
        return one_line(str.__str__(self)) + _as_text(_shown(self._fields))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # fields need not be picklable


class Logger:
    """`bind` returns a logger that adds fields to each record. `error` may be an exception."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, Any] | None = None) -> None:
        self._logger = logger
        self._fields: Mapping[str, Any] = fields or {}

    def bind(self, **fields: Any) -> Logger:
        return Logger(self._logger, {**self._fields, **fields})

    @property
    def debugs(self) -> bool:
        """Whether debug lines are written: for debug fields that are expensive to compute."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, message: str, /, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def crash(self, message: str, /, error: BaseException, **fields: Any) -> None:
        """An unexpected error: with its stack trace at every level."""
        self._log(logging.ERROR, message, {"error": error, **fields}, trace=True)

    def _log(self, level: int, message: str, fields: Mapping[str, Any], *, trace: bool = False) -> None:
        if not self._logger.isEnabledFor(level):
            return
        error = fields.get("error")
        wants_trace = isinstance(error, BaseException) and (trace or self._logger.isEnabledFor(logging.DEBUG))
        every = {**_context.get(_of_process), **self._fields, **fields}
        self._logger.log(
            level,
            Message.of(message, every),
            exc_info=error if wants_trace else None,
            extra={"fields": every},
            stacklevel=3,
        )


def get_logger(name: str) -> Logger:
    """The logger of that name; by convention the package (`kubeshard.cache`)."""
    return Logger(logging.getLogger(name))


class context:  # noqa: N801 - used as a function
    """Adds fields to every record of this task, and of tasks started inside, until the block exits."""

    __slots__ = ("_fields", "_reset")

    def __init__(self, given: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._fields = fields if given is None else {**given, **fields}

    def __enter__(self) -> None:
        self._reset = _context.set({**_context.get(_of_process), **self._fields})

    def __exit__(self, *_: object) -> None:
        _context.reset(self._reset)


def in_every_record(**fields: Any) -> None:
    """Adds fields to every record of this process, in all threads. For a program, before it starts anything."""
    _of_process.update(fields)


def parse_levels(text: str) -> dict[str, int]:
    """`info,kubeshard.cache=debug` as logger name -> level, "" for all others. Raises ValueError."""
    levels = {"": logging.INFO}
    for part in text.split(","):
        name, _, level = part.strip().rpartition("=")
        if level.lower() not in LEVELS:
            raise ValueError(f"unknown log level {level!r}: choose one of {', '.join(LEVELS)}")
        levels[name] = LEVELS[level.lower()]
    return levels


def setup(
    level: str = "info", format: Literal["text", "json"] = "text", *, stream: TextIO | None = None
) -> None:
    """Replaces an earlier setup; `stream` is standard error by default. For programs, not for libraries."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else _text_for(handler.stream))
    handler.set_name("kubeshard")
    root = logging.getLogger()
    for old in [h for h in root.handlers if h.get_name() == "kubeshard"]:
        root.removeHandler(old)
    root.addHandler(handler)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, number in parse_levels(level).items():
        logging.getLogger(name).setLevel(number)


@contextmanager
def heard_by(handler: logging.Handler, level: int) -> Iterator[None]:
    """Everything that is logged from this level on reaches the handler, too, as long as the block lasts."""
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def _text_for(stream: TextIO) -> logging.Formatter:
    on_screen = stream.isatty()
    plain = environ.variable("NO_COLOR") is not None or environ.variable("TERM") == "dumb"
    return TextFormatter(on_screen=on_screen, coloured=on_screen and not plain)


class TextFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z INFO kubeshard.sharder: Assigned object object=default/a shard=b`, for
    people. `on_screen`: the time without the date, as for somebody who is looking; `coloured`: the levels.

    What the logger's name says already is left out, and a reconcile's id is short and comes last.
    """

    def __init__(self, *, on_screen: bool = False, coloured: bool = False) -> None:
        super().__init__()
        self._on_screen = on_screen
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        level, time = record.levelname, _timestamp(record)
        if self._on_screen:
            level, time = f"{level:7}", time[11:-1]
        if self._coloured and (colour := _COLOURS.get(record.levelname)):
            level = f"\x1b[{colour}m{level}\x1b[0m"
        line = f"{time} {level} {record.name}: {one_line(_bare(record))}"
        # A QueueHandler has rendered our messages already, with their fields.
        if isinstance(record.msg, Message) or not hasattr(record, "fields"):
            line += _as_text(_for_people(record))
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        line: dict[str, Any] = {
            "level": _LEVEL_NAMES.get(level, level),
            "ts": _timestamp(record),
            "logger": record.name,
            "msg": _bare(record),
            **{_IN_JSON.get(name, name): value for name, value in _fields(record).items()},
        }
        for name, value in _named(record):
            line.setdefault(name, value)
        if trace := _trace(record):
            line["stacktrace"] = trace
        return _json(line)


def error_line(error: BaseException) -> str:
    """`NotFound: websites "a" not found`; for a group, the text of its members."""
    return one_line(_error_text(error))


def _error_text(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_error_text(member) for member in error.exceptions)
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """`str(error)`, whatever the class of an author does."""
    try:
        return str(error)
    except Exception as second:
        return f"its text cannot be shown: {type(second).__name__}"


def one_line(text: str) -> str:
    """The text with control characters and line breaks escaped: what others wrote cannot steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _fields(record: logging.LogRecord) -> dict[str, str | int | float | bool | None]:
    plain = _shown(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        plain.setdefault("error", _plain(record.exc_info[1]))
    return plain


def _for_people(record: logging.LogRecord) -> dict[str, str | int | float | bool | None]:
    found = _fields(record)
    if record.name.endswith(f".{found.get('controller')}"):
        del found["controller"]
    if isinstance(id := found.pop("reconcile_id", None), str):
        found["reconcile_id"] = id[:_SHORT_ID]
    return found


def _shown(fields: Mapping[str, Any]) -> dict[str, str | int | float | bool | None]:
    return {name: "<hidden>" if name.lower() in _SECRET else _plain(value) for name, value in fields.items()}


def _as_text(fields: Mapping[str, str | int | float | bool | None]) -> str:
    return "".join(f" {name}={_text(value)}" for name, value in fields.items() if name not in _IN_JSON_ONLY)


def _bare(record: logging.LogRecord) -> str:
    """The message without its fields."""
    return str.__str__(record.msg) if isinstance(record.msg, Message) else record.getMessage()


def _named(record: logging.LogRecord) -> list[tuple[str, str | dict[str, str]]]:
    """If the field `object` has both; for a reconcile both under the kind."""
    fields = getattr(record, "fields", {})
    about, kind = fields.get("object"), fields.get("controller_kind")
    if not isinstance(about, tuple):
        return []
    parts = [(part, getattr(about, part, None)) for part in ("namespace", "name")]
    found: list[tuple[str, str | dict[str, str]]] = [
        (part, value) for part, value in parts if isinstance(value, str)
    ]
    if isinstance(kind, str) and kind:
        found.append((kind, {part: value for part, value in parts if isinstance(value, str) and value}))
    return found


def _plain(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, BaseException):
        text = _error_text(value)
    elif isinstance(value, bytes | bytearray | memoryview):
        text = f"<{len(value)} bytes>"
    elif isinstance(value, list | set | frozenset) or type(value) is tuple:
        text = ",".join(str(item) for item in value)
    else:
        text = str(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def _text(value: str | int | float | bool | None) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    text = str(value)
    if text and text.isprintable() and not any(c in ' "=' for c in text):
        return text
    return _json(text)


def _json(value: Any) -> str:
    """As JSON, with everything escaped, once, that could steer a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    )


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _trace(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
