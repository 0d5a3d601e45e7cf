"""`/livez`, `/readyz`, `/healthz`: the health of the server, as a whole and check by check.

Guaranteed: `ok` while writes can be stored; every method is accepted, as on the real server. Only the checks that make
sense here exist, under their real names: `etcd` checks the store and its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeshard_apiserver.front.replies import Reply, page_not_found, text_reply
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.store import Store

_PROBES = ("healthz", "livez", "readyz")
_ALWAYS = ("ping", "log")
_STARTED = (
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/rbac/bootstrap-roles",
)


class Probes:
    def __init__(self, store: Store) -> None:
        self._checks: dict[str, Callable[[], bool]] = {
            **dict.fromkeys(_ALWAYS, _fine),
            "etcd": lambda: not store.problem,
            **dict.fromkeys(_STARTED, _fine),
        }

    def reply(self, request: Request) -> Reply | None:
        """Replies to a probe; returns None for any other request."""
        probe, _, check = request.path.removeprefix("/").partition("/")
        if probe not in _PROBES or not request.path.startswith("/"):
            return None
        if check or request.path.endswith("/"):
            if check not in self._checks:
                return page_not_found()
            return (
                text_reply(200, "ok")
                if self._checks[check]()
                else text_reply(500, "internal server error: reason withheld\n")
            )
        excluded = set(request.every("exclude"))
        works = all(check() for name, check in self._checks.items() if name not in excluded)
        if works and "verbose" not in request.query:
            return text_reply(200, "ok")
        end = f"{probe} check {'passed' if works else 'failed'}\n"
        return text_reply(200 if works else 500, "".join(self._lines(excluded)) + end)

    def _lines(self, excluded: set[str]) -> Iterator[str]:
        for name, check in self._checks.items():
            if name in excluded:
                yield f"[+]{name} excluded: ok\n"
            elif check():
                yield f"[+]{name} ok\n"
            else:
                yield f"[-]{name} failed: reason withheld\n"
        if unknown := sorted(excluded - self._checks.keys()):
            named = ", ".join(f'"{name}"' for name in unknown)
            yield f"warn: some health checks cannot be excluded: no matches for {named}\n"


def _fine() -> bool:
    return True
