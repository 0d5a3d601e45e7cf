"""Reports kinds that cannot be read: in the log, in metrics, and in the details of readiness.

Guaranteed: one line with advice when a kind goes missing, a right on it is missing, the cause changes, or the server
begins to serve it in another way than its class declares, and one when it is back; both name the controllers that wait;
an API server that does not respond at all, or has errors for each of several kinds, is one line for all kinds. A kind
whose list merely takes long is not reported for PATIENCE seconds. A handler that does not return for HANDLER_PATIENCE
seconds is reported once per call. None of this affects liveness, because a restart would not help. A shard also says it
in events about its Lease (`KindUnreadable`, `KindReadable`; `ClusterUnreadable`, `ClusterReadable`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubeshard.cache.cache import Cache
from kubeshard.cache.handlers import Registration
from kubeshard.cache.informer import Informer
from kubeshard.client.client import Client
from kubeshard.client.discovery import Discovery
from kubeshard.controller.runner import ControllerRunner, RemoteWatches
from kubeshard.controller.syncing import (
    CHECK,
    SyncProblem,
    explained,
    is_served,
    sync_problem,
    until_answered,
    until_any_filled,
    until_doubtful,
    until_filled,
)
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.errors import ApiError, Forbidden, NotFound, Unauthorized
from kubeshard.core.kinds import Kind
from kubeshard.manager.controllers import Controllers
from kubeshard.metrics.families import gauge
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices

PATIENCE = 10.0

HANDLER_PATIENCE = 30.0

RECOVERY = 60.0
"""Seconds after an outage in which kinds are not reported: their informers retry one by one."""

START_PATIENCE = 30.0
"""Seconds for which work waits for a kind about which the server has not responded."""

LOOKED_UP_WITHIN = 5.0

LOOKED_UP_EVERY = 60.0
"""Seconds after which it is asked again how the server serves a kind."""

RecordEvent = Callable[[Literal["Normal", "Warning"], str, str], None]
"""Called with the type, the reason and the message of a Kubernetes event."""

_log = get_logger("kubeshard.manager")


async def served_as(discovery: Discovery, kinds: Iterable[Kind]) -> list[Kind | None]:
    """How the server serves each of these kinds, which it does not serve as declared: in the version that is declared,
    in another one of its group, or else in another group. Raises ApiError.
    """
    found, every = list[Kind | None](), None
    for declared in kinds:
        discovery.forget(declared.group)
        try:
            served = [
                await discovery.kind(declared.group, kind=declared.kind, version=declared.version or None)
            ]
        except NotFound:
            served = every = every or (await discovery.all_kinds())[0]
        alike = [each for each in served if each.kind == declared.kind and each != declared]
        found.append(min(alike, key=lambda each: each.group != declared.group, default=None))
    return found


def declaration_advice(declared: Kind, found: Kind, otherwise: str) -> str:
    """What to write in the class. A kind of another group may be another one of that name."""
    names = ("group", "version", "plural", "namespaced")
    wrong = [name for name in names if getattr(found, name) != getattr(declared, name)]
    write = ", ".join(f"{name}={getattr(found, name)!r}".replace("'", '"') for name in wrong)
    scope = "namespaced" if found.namespaced else "cluster-scoped"
    where = f"{found.plural}.{found.group}" if found.group else found.plural
    told = (
        f"the server serves {found.kind} as {where} in version {found.version}, {scope}: write {write} in the class "
        f"{declared.kind}"
    )
    return told if found.group == declared.group else f"{otherwise}; or, if that is meant: {told}"


async def until_shared(informers: Sequence[Informer[Any]]) -> None:
    """Waits until the informers of a shared cache are filled or their kinds are not served, forever if necessary.
    Raises Unauthorized like `until_known`.
    """
    await until_answered(informers)
    _check_credentials(informers)
    await until_filled(informers)


async def until_known(
    informers: Sequence[Informer[Any]],
    owning: Sequence[ControllerRunner],
    runners: Sequence[ControllerRunner],
) -> None:
    """Waits until the server has listed each kind or returned an error, and longer for the primary kinds of `owning`:
    a shard is assigned objects of these kinds as soon as it has its Lease. No kind keeps the others waiting for more
    than START_PATIENCE, if any of `runners` can work by then: a shard without any work waits without a Lease.

    Raises Unauthorized if the server refuses the credentials for all of them: credentials that have expired when a
    program starts are a mistake, later on they may be about to be rotated.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(START_PATIENCE):
            await until_answered(informers)
            _check_credentials(informers)
            await until_filled([runner.primary for runner in owning])
            await until_answered([each for runner in owning for each in runner.informers])
    _check_credentials(informers)
    if owning:
        await until_any_filled([runner.primary for runner in runners])
    filled = sum(informer.has_synced for informer in informers)
    said = (
        "Caches are filled"
        if filled == len(informers)
        else "Some caches are not filled; the controllers that need them wait"
    )
    _log.info(said, informers=filled, of=len(informers))


def _check_credentials(informers: Sequence[Informer[Any]]) -> None:
    errors = [informer.last_error for informer in informers]
    if errors and all(isinstance(error, Unauthorized) for error in errors):
        assert errors[0] is not None
        raise errors[0]


class Kinds:
    """The kinds of one cluster. `cache` returns the current cache, or None if there is none yet. `run` writes the log,
    and calls `record` for what people should also see in the cluster. `client` finds out how the server serves a kind
    whose declaration does not match.
    """

    def __init__(
        self,
        cache: Callable[[], Cache | None],
        controllers: Controllers,
        clock: Clock,
        cluster: str = HOME_CLUSTER,
        *,
        client: Callable[[], Client | None] = lambda: None,
        record: RecordEvent = lambda type, reason, message: None,
    ) -> None:
        self._client = client
        self._record = record
        self._cache = cache
        self._cluster = cluster
        self._controllers = controllers
        self._log = _log.bind(cluster=cluster) if cluster else _log
        self._clock = clock
        self._since: dict[Informer[Any], float] = {}
        """When each informer was first found not to be live."""
        self._notices = Notices()
        """By informer the cause, and how the server serves its kind instead."""
        self._served_as: dict[Informer[Any], Kind | None] = {}
        """How the server serves each kind that it does not serve as declared, as far as it is known."""
        self._looked_up: dict[Informer[Any], float] = {}
        """When that was last asked."""
        self._well: set[Informer[Any]] = set()
        """The informers that were fine at the last check."""
        self._hanging = Notices()
        """Calls of handlers."""
        self._outage = False
        self._quiet_until = 0.0

    async def run(self) -> NoReturn:
        if (cache := self._cache()) is not None:
            cache.leave_reporting()
        while True:
            now = self._clock.monotonic()
            problems = {each: found for each in self.informers() if (found := sync_problem(each, now))}
            if problems:
                await self._look_up([each for each, found in problems.items() if found.cause == "not served"])
            self._check(problems)
            cache = self._cache()
            if cache is None or self._since or self._notices or self._hanging or self._outage:
                await asyncio.sleep(CHECK)
            else:
                busy = [since for _, _, since in self._busy()]
                until = min(busy, default=self._clock.monotonic()) + HANDLER_PATIENCE
                await until_doubtful(cache.informers, self._clock, cache.redeclared(), until=until)

    # For the pages.

    def unfilled(self) -> str | None:
        """For readiness: the kinds that the process has not read yet although the server serves them. START_PATIENCE
        seconds after the first try, those do not count for which the server fails: it may be because nobody calls a
        process that is not ready, such as one that serves the conversion webhook of the kind.
        """
        if self._cache() is None:
            return "not started"
        behind = [str(each) for each in self.informers() if not each.has_synced and self._hinders(each)]
        return f"not synced: {', '.join(behind)}" if behind else None

    def _hinders(self, informer: Informer[Any]) -> bool:
        since = self._since.get(informer)
        if not is_served(informer):
            return False
        if since is None or self._clock.monotonic() - since < START_PATIENCE:
            return True
        return explained(informer, informer.last_error).cause != "unavailable"

    def notes(self) -> Iterator[str]:
        """Details of readiness: what does not work although the process is ready."""
        for runner in self.runners():
            if missing := runner.waits_for():
                why = ", ".join(f"{kind} ({found.cause})" for kind, found in missing.items())
                yield f"controller {runner.name} waits for {why}"
        for informer in self.informers():
            if informer.last_error is not None:
                yield f"{informer} cannot be listed or watched ({type(informer.last_error).__name__})"
        now = self._clock.monotonic()
        for informer, handler, since in self._overdue(now):
            yield (
                f"handler {handler.name} of {informer} has not returned for {now - since:.0f} s; "
                f"{handler.waiting} objects wait for it"
            )

    async def _look_up(self, unserved: Sequence[Informer[Any]]) -> None:
        """Whether the declaration of a kind that is not served is wrong, rather than the cluster. Again and again: the
        cluster changes, too. What cannot be looked up stays as it was.
        """
        now, client = self._clock.monotonic(), self._client()
        self._looked_up = {each: self._looked_up.get(each, -LOOKED_UP_EVERY) for each in unserved}
        self._served_as = {each: self._served_as[each] for each in unserved if each in self._served_as}
        missing = [each for each, at in self._looked_up.items() if now - at >= LOOKED_UP_EVERY]
        if not missing or client is None:
            return
        self._looked_up.update(dict.fromkeys(missing, now))
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(LOOKED_UP_WITHIN):
                declared = [each.form.kind for each in missing]
                for informer, found in zip(missing, await served_as(client.discovery, declared), strict=True):
                    self._served_as[informer] = found

    # The log

    def runners(self) -> Sequence[ControllerRunner]:
        return self._controllers.runners_in(self._cluster)

    def informers(self) -> Sequence[Informer[Any]]:
        cache = self._cache()
        return cache.informers if cache else ()

    def _check(self, problems: dict[Informer[Any], SyncProblem]) -> None:
        now = self._clock.monotonic()
        self._report_hanging(now)
        informers = self.informers()
        self._since = {each: self._since.get(each, now) for each in problems}
        self._report_outage(problems, now, everything=len(problems) == len(informers))
        for informer, found in problems.items():
            self._report(informer, found, now)
        for informer in [each for each in informers if each not in problems and _forbidden(each)]:
            self._report_forbidden(informer)
        self._report_recovered([each for each in informers if each not in problems and not _refused(each)])
        self._notices.keep(informers)

    def _report_outage(
        self, problems: dict[Informer[Any], SyncProblem], now: float, *, everything: bool
    ) -> None:
        causes = {found.cause for found in problems.values()}
        errors = [found.error for found in problems.values() if found.error is not None]
        outage = (
            everything
            and causes <= {"unavailable", "unanswered"}
            and bool(errors)
            and all(_is_of_the_server(error, alone=len(problems) == 1) for error in errors)
        )
        if outage and not self._outage:
            error = errors[0]
            advice = "check its address, the network, and the certificate authority of the kubeconfig; nothing is lost"
            self._log.warning("The API server does not respond; waiting for it", error=error, advice=advice)
            if self._cluster:
                message = f"cluster {self._cluster} does not respond: its objects wait; {advice}"
                self._record("Warning", "ClusterUnreadable", message)
        if self._outage and not outage:
            self._log.info("The API server responds again")
            if self._cluster:
                self._record("Normal", "ClusterReadable", f"cluster {self._cluster} responds again")
            self._quiet_until = now + RECOVERY
        self._outage = outage

    def _report(self, informer: Informer[Any], found: SyncProblem, now: float) -> None:
        if self._outage:
            return
        if found.cause in ("unanswered", "unavailable") and (
            now < self._quiet_until or now - self._since[informer] < PATIENCE
        ):
            return
        served = self._served_as.get(informer)
        if not self._notices.due(informer, (found.cause, served)):
            return
        advice = (
            found.advice if served is None else declaration_advice(informer.form.kind, served, found.advice)
        )
        self._record(
            "Warning",
            "KindUnreadable",
            f"{informer} cannot be read ({found.cause}): its objects wait; {advice}",
        )
        self._log.warning(
            "A kind cannot be read; the controllers that need it wait",
            kind=str(informer),
            cause=found.cause,
            controllers=self._users(informer),
            error=found.error,
            advice=advice,
        )

    def _report_recovered(self, well: Sequence[Informer[Any]]) -> None:
        """Reports recovery at the second check: if only watches are rejected, every successful list looks fine until
        the next watch.
        """
        for informer in well:
            if informer in self._well and self._notices.resolved(informer) and not self._outage:
                self._record("Normal", "KindReadable", f"{informer} can be read again")
                self._log.info(
                    "A kind can be read again", kind=str(informer), controllers=self._users(informer)
                )
        self._well = set(well)

    def _report_forbidden(self, informer: Informer[Any]) -> None:
        """Reports a missing right on a filled informer, for example if lists succeed and watches are rejected. Its
        controllers do not wait yet.
        """
        found = explained(informer, informer.last_error)
        if not self._notices.due(informer, (found.cause, None)):
            return
        self._log.warning(
            "A right on a kind is missing; changes of its objects are seen late, or not at all",
            kind=str(informer),
            controllers=self._users(informer),
            error=found.error,
            advice=found.advice,
        )

    def _overdue(self, now: float) -> Iterator[tuple[Informer[Any], Registration[Any], float]]:
        """Handlers that do not return, and when they were called."""
        return (each for each in self._busy() if now - each[2] >= HANDLER_PATIENCE)

    def _busy(self) -> Iterator[tuple[Informer[Any], Registration[Any], float]]:
        """Handlers that have not returned yet, and when they were called."""
        for informer in self.informers():
            for handler in informer.handlers:
                if handler.busy_since is not None:
                    yield informer, handler, handler.busy_since

    def _report_hanging(self, now: float) -> None:
        hanging = set()
        for informer, handler, since in self._overdue(now):
            hanging.add((handler, since))
            if self._hanging.due((handler, since)):
                self._log.warning(
                    "A handler does not return; only this handler gets no more changes",
                    kind=str(informer),
                    handler=handler.name,
                    seconds=now - since,
                )
        self._hanging.keep(hanging)

    def _users(self, informer: Informer[Any]) -> str:
        """The controllers that declared the informer, or all controllers if none did."""
        users: list[ControllerRunner | RemoteWatches] = [
            *self.runners(),
            *self._controllers.remote_watches_in(self._cluster),
        ]
        names = [user.name for user in users if informer in user.informers]
        return ", ".join(names) or "all"


class KindMetrics(Collector):
    """`kinds` returns the `Kinds` of all clusters."""

    def __init__(self, kinds: Callable[[], Iterable[Kinds]]) -> None:
        self._kinds = kinds

    def collect(self) -> Iterator[Metric]:
        waiting = gauge("kubeshard_controller_waiting")
        for kinds in self._kinds():
            for runner in kinds.runners():
                missing = runner.waits_for()
                for kind in dict.fromkeys(map(str, runner.informers)):
                    waiting.add_metric((runner.name, kind), float(kind in missing))
        yield waiting


def _is_of_the_server(error: ApiError, *, alone: bool) -> bool:
    """Whether the error may be about the server rather than about one kind. `alone`: there is no other kind."""
    if error.code in (0, 502, 503, 504):  # of a proxy, or of a server that ends
        return True
    return not alone and (error.code == 429 or error.code >= 500)


def _forbidden(informer: Informer[Any]) -> bool:
    return isinstance(informer.last_error, Forbidden)


def _refused(informer: Informer[Any]) -> bool:
    """Whether a permission is still missing, although lists succeed."""
    return isinstance(informer.last_error, Forbidden | Unauthorized)
