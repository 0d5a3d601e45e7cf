"""Named health checks over HTTP, like those of Kubernetes components.

    GET /healthz                  200 `ok`, or 500 naming the checks that failed
    GET /healthz/workers          one check
    GET /healthz?verbose          every check by name, also when all are fine
    GET /healthz?exclude=NAME     without that check; may be repeated

The reason of a failed check is logged once, but never sent: the port is open to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import parse_qs

from kubeshard.manager.http import Page, Request
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices

Check = Callable[[], str | None]
"""Returns what is wrong, or None. Must not block or raise; a check that raises has failed."""

_log = get_logger("kubeshard.manager.health")


def ping() -> str | None:
    """Always succeeds: it shows that the event loop responds."""
    return None


class Checks:
    """The pages of one set of checks: `/healthz` and its subpaths. `notes` are lines of the verbose response about
    what does not count as a failure.
    """

    def __init__(
        self, path: str, checks: Mapping[str, Check], notes: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self._path = path
        self._checks = checks
        self._notes = notes
        self._notices = Notices()
        self._passed: set[str] = set()
        """Those that have passed once: until then, the process starts, and a failure is no news."""

    def page(self, request: Request) -> Page | None:
        """The response, or None for any other path."""
        path, _, name = request.path.removesuffix("/").partition(f"{self._path}/")
        if path == self._path:
            return self._all(request.query)
        if path == "" and name in self._checks:
            return (
                Page(500, f"internal server error: {name} failed\n") if self._fails(name) else Page(200, "ok")
            )
        return None

    def _all(self, query: str) -> Page:
        parameters = parse_qs(query, keep_blank_values=True)
        excluded = set(parameters.get("exclude", ()))
        lines: list[str] = []
        failed = False
        for name in self._checks:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok\n")
            elif self._fails(name):
                failed = True
                lines.append(f"[-]{name} failed: reason withheld\n")
            else:
                lines.append(f"[+]{name} ok\n")
        if unknown := sorted(excluded - set(self._checks)):
            lines.append(f"warn: no such checks to exclude: {', '.join(unknown)}\n")
        lines += [f"warn: {note}\n" for note in self._notes()]
        what = self._path.strip("/")
        if failed:
            return Page(500, "".join(lines) + f"{what} check failed\n")
        return Page(200, "".join(lines) + f"{what} check passed\n" if "verbose" in parameters else "ok")

    def _fails(self, name: str) -> bool:
        try:
            problem = self._checks[name]()
        except Exception as error:
            _log.crash("Health check crashed", error, check=name)
            return True
        if problem is None:
            self._notices.resolved(name)
            self._passed.add(name)
        elif self._notices.due(name):  # probes are sent every few seconds
            say = _log.warning if name in self._passed else _log.info
            say("Health check failed", check=name, probe=self._path, reason=problem)
        return problem is not None
