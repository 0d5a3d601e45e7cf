"""What goes wrong in a simulation, as data: it can be written to a file, replayed and shrunk."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.shard.settings import Ranges

Sharder = Literal["service", "in-manager", "both"]
Delivery = Literal["labels", "uid", "namespace", "cluster"]

RANGES: dict[Delivery, Ranges | None] = {
    "labels": None,
    "uid": Ranges(by="uid", buckets=64),
    "namespace": Ranges(by="namespace", buckets=64),
    "cluster": Ranges(by="cluster", buckets=64),
}


def stream(*of: object) -> random.Random:
    """Returns a stream of random numbers of its own for each purpose."""
    return random.Random("/".join(map(str, of)))  # noqa: S311 - repeatable, not secret


class TimedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`after`: the first objects. `draws`: victim and duration. `stretch`: by which it lasts longer."""

    after: float
    kind: str
    draws: str
    stretch: float = 1.0


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """`templates`: made up without. `always`, `eventually`: MODULE:FUNCTION. `instances`: 0 is the default."""

    target: str
    templates: tuple[str, ...] = ()
    manifests: tuple[dict[str, Any], ...] = ()
    always: tuple[str, ...] = ()
    eventually: tuple[str, ...] = ()
    instances: int = 0


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run: the same script gives the same run, event by event, with the same version of kubeshard. `calm`: the factor
    by which changes of an object are further apart than usual. `delivery`: by labels, or by ranges of what. `operator`:
    what is simulated instead of the Things of a ring. `digest`: of the run that was recorded.
    """

    seed: int
    minutes: float
    objects: int = 30
    calm: float = 1.0
    sharder: Sharder = "service"
    delivery: Delivery = "labels"
    operator: Operator | None = None
    digest: str = ""
    faults: tuple[TimedFault, ...] = ()

    def save(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def load(cls, file: Path, kinds: Collection[str]) -> Script:
        """`kinds`: the faults that there are. Raises ConfigurationError if the file cannot be read or is no script."""
        try:
            script = msgspec.json.decode(file.read_bytes(), type=cls)
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{file} is no script of a simulation: {error}") from error
        if unknown := {fault.kind for fault in script.faults} - {*kinds}:
            raise ConfigurationError(f"{file} names faults that do not exist: {', '.join(sorted(unknown))}")
        return script


def shrunk(
    script: Script,
    fails: Callable[[Script], bool],
    *,
    within: float = math.inf,
    tell: Callable[[str], None] = lambda line: None,
) -> Script:
    """The smallest script that still `fails`: what comes later than `within`, then faults, left out or shortened."""
    replace = msgspec.structs.replace
    earlier = tuple(fault for fault in script.faults if fault.after < within)
    begun = replace(script, faults=earlier, minutes=min(script.minutes, round(within / 60 + 0.1, 2)))
    if begun != script and fails(begun):
        script = begun

    def attempt(faults: Sequence[TimedFault], minutes: float = script.minutes) -> Script | None:
        smaller = replace(script, faults=tuple(faults), minutes=minutes)
        return smaller if fails(smaller) else None

    if script.faults and (found := attempt(())) is not None:
        script = found
        tell("no fault is needed")
    part = 2
    while len(script.faults) > 1:
        size = math.ceil(len(script.faults) / part)
        found = None
        for begin in range(0, len(script.faults), size):
            found = attempt(script.faults[:begin] + script.faults[begin + size :])
            if found is not None:
                break
        if found is not None:
            script, part = found, max(2, part - 1)
            tell(f"{len(script.faults)} {'faults are' if len(script.faults) > 1 else 'fault is'} enough")
        elif size == 1:
            break
        else:
            part = min(2 * part, len(script.faults))
    for number, fault in enumerate(script.faults):
        for stretch in (0.1, 0.5):
            faults = [*script.faults]
            faults[number] = replace(fault, stretch=stretch)
            if (found := attempt(faults)) is not None:
                script = found
                tell(f"{fault.kind} lasts {stretch:g} times as long")
                break
    last = max((fault.after for fault in script.faults), default=0.0)
    for minutes in (last / 60 + 0.2, last / 60 + 1.5):
        if minutes < script.minutes and (found := attempt(script.faults, round(minutes, 2))) is not None:
            tell(f"{found.minutes:g} minutes are enough")
            return found
    return script
