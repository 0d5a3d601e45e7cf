"""How a program logs: in kubeshard's formats, or in its own.

    import kubeshard.logging

    kubeshard.logging.setup("info,kubeshard.cache=debug", "json")

`setup` sends the records of the whole process to one stream. `run` calls it with its defaults if the program has no
handler on the root logger yet. A program that sets up the standard library's `logging` itself keeps its set-up: every
record says everything in its message, and has its fields in `record.fields`. `JsonFormatter` and `TextFormatter` are
for handlers of its own. `get_logger` and `context` are for lines with fields outside a reconcile, where there is
no `ctx.log`. See docs/how-to/observe.md.
"""

from __future__ import annotations

from kubeshard.runtime.logs import JsonFormatter, Logger, TextFormatter, context, get_logger, setup

__all__ = ["JsonFormatter", "Logger", "TextFormatter", "context", "get_logger", "setup"]
