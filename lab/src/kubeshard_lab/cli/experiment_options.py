"""What the options of `kubeshard experiment` ask for: one value for each group of them, which is right once it is made.

All raise ConfigurationError for options that cannot work, or not together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import click

from kubeshard.commands.options import Function
from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import Duration
from kubeshard_lab.experiment.scenarios import SCENARIOS, Scenario, scaled

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from kubeshard_lab.experiment.setups import Kind, Setup
    from kubeshard_lab.experiment.subject import Subject

G = TypeVar("G", bound="DataclassInstance")

LOCAL_SCALE = 0.1
_SIMULATED_LATENCY, _MAX_SIMULATED_LATENCY = 0.01, 2.0
_INSTANCES = 3
_WORKERS, _SINGLETON_WORKERS = 15, 50


class _Cost(NamedTuple):
    """Of a simulation; seconds or, for the rate, writes per second. `low` and `high`: what may be given."""

    default: float
    low: float
    high: float
    example: str


_COSTS = {
    "request": _Cost(0.0008, 0.0, 1.0, "request=0.8ms"),
    "event": _Cost(0.0002, 0.0, 1.0, "event=0.2ms"),
    "rate": _Cost(math.inf, 1.0, 1e6, "rate=333"),
}


class DurationType(click.ParamType):  # type: ignore[type-arg] # generic in stubs only
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value) if isinstance(value, int | float) else float(Duration.parse(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail("is not positive", param, ctx)
        return seconds


def load_options(function: Function) -> Function:
    scale = click.option(
        "--scale",
        metavar="FACTOR",
        type=click.FloatRange(0, min_open=True),
        default=LOCAL_SCALE,
        show_default=True,
        help="Times the scenario's rates and numbers.",
    )
    duration = click.option(
        "--duration",
        metavar="DURATION",
        type=DurationType(),
        help="Of the load, such as 90s or 15m (default: the scenario's, which is 15m).",
    )
    seed = click.option(
        "--seed",
        metavar="NUMBER",
        type=int,
        default=1,
        show_default=True,
        help="The same seed is the same load.",
    )
    return scale(duration(seed(function)))


@dataclass(frozen=True)
class LoadOptions:
    scenario: str
    scale: float
    duration: float | None
    seed: int
    parallel: int

    @property
    def wanted(self) -> Scenario:
        return scaled(SCENARIOS[self.scenario], self.scale, self.duration)


@dataclass(frozen=True)
class PlaceOptions:
    """Where the programs and their API server are."""

    server: str
    latency: float | None
    costs: str
    kubeconfig: str | None
    context: str | None

    def __post_init__(self) -> None:
        if self.server != "cluster" and (self.kubeconfig or self.context):
            raise ConfigurationError("--kubeconfig and --context need --on cluster")
        if self.server != "simulation" and self.costs:
            raise ConfigurationError("--costs needs --on simulation")
        if self.server == "simulation" and self.delay > _MAX_SIMULATED_LATENCY:
            raise ConfigurationError(f"--latency: {_MAX_SIMULATED_LATENCY:g}s at most in a simulation")
        if self.server == "real" and self.latency:
            raise ConfigurationError("--latency is the embedded API server's: leave out --on, or --latency")
        _ = self.charged

    @property
    def delay(self) -> float:
        return self.latency or (_SIMULATED_LATENCY if self.server == "simulation" else 0.0)

    @cached_property
    def charged(self) -> Mapping[str, float]:
        """What work costs, of a simulation."""
        given = dict[str, float]()
        for part in self.costs.split(",") if self.costs else ():
            name, _, value = (word.strip() for word in part.partition("="))
            if (cost := _COSTS.get(name)) is None:
                examples = ",".join(each.example for each in _COSTS.values())
                raise ConfigurationError(
                    f"--costs: {name!r} is none of {', '.join(_COSTS)}: write {examples}"
                )
            if name in given:
                raise ConfigurationError(f"--costs: {name} is there twice")
            try:
                number = float(value) if name == "rate" else float(Duration.parse(value))
            except ValueError:
                raise ConfigurationError(
                    f"--costs: {name} cannot be {value!r}: write {cost.example}"
                ) from None
            if not cost.low <= number <= cost.high:
                raise ConfigurationError(f"--costs: {name} cannot be {value}: write {cost.example}")
            given[name] = number
        return {name: given.get(name, cost.default) for name, cost in _COSTS.items()}

    @property
    def all_costs(self) -> str:
        """Those of a simulation, as `--costs` takes them."""
        return ",".join(
            f"{name}={number:g}" if name == "rate" else f"{name}={number * 1000:g}ms"
            for name, number in self.charged.items()
            if self.server == "simulation" and number != math.inf
        )


@dataclass(frozen=True)
class ProgramOptions:
    setup_kind: Kind | None
    instances: int | None
    workers: int | None
    program: str
    operator_program: str | None
    sharder_program: str | None
    go_operator: Path | None
    go_sharder: Path | None

    @property
    def operator(self) -> Path | None:
        """The Go project's; None is kubeshard's."""
        return _program(self.operator_program or self.program, self.go_operator, "operator")

    @property
    def sharder(self) -> Path | None:
        return _program(self.sharder_program or self.program, self.go_sharder, "sharder")


@dataclass(frozen=True)
class OwnOptions:
    own: str | None
    template: Path | None
    manifests: tuple[Path, ...]
    ready: str
    ring: str | None
    controller: str | None

    def subject(self, scenario: str, setup: str) -> tuple[Callable[[str], Subject], int]:
        """What makes the objects of a run, given its id, and the workers of an author's controller, 0 without one."""
        from kubeshard_lab.experiment.templates import Ready, Templates
        from kubeshard_lab.experiment.websites import Websites

        if self.own is None or self.template is None:
            if self.own or self.template or self.manifests or self.ring or self.controller:
                raise ConfigurationError("your own operator needs both --operator and --template")
            return lambda run: Websites(run, scenario), 0
        if (setup == "singleton") == bool(self.ring):
            raise ConfigurationError(
                "--ring names your operator's ring for --setup in-manager and external, and there is none in a "
                "singleton"
            )
        from kubeshard.cli.loading import load_manager
        from kubeshard.cli.yaml_files import objects_in

        controllers = {each.name: each for each in load_manager(self.own).deployment_needs().controllers}
        controller = self.controller
        if controller is None and len(controllers) == 1:
            (controller,) = controllers
        if controller not in controllers:
            raise ConfigurationError(f"--controller: choose one of {', '.join(sorted(controllers))}")
        text = self.template.read_text(encoding="utf-8")
        given = [each.manifest for path in self.manifests for each in objects_in(path)]
        load = SCENARIOS[scenario]
        changes = load.changes_spec and bool(load.change_every or load.storm_every)

        def made(run: str) -> Templates:
            return Templates(
                run,
                scenario,
                text,
                ready=Ready.parse(self.ready),
                ring=self.ring or "",
                controller=controller,
                given=given,
                changes=changes,
            )

        made("")  # mistakes are found now
        return made, controllers[controller].workers


@dataclass(frozen=True)
class Asked:
    load: LoadOptions
    place: PlaceOptions
    programs: ProgramOptions
    own: OwnOptions

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:

        def group(made: type[G]) -> G:
            return made(**{each.name: options[each.name] for each in fields(made)})

        return cls(group(LoadOptions), group(PlaceOptions), group(ProgramOptions), group(OwnOptions))

    def __post_init__(self) -> None:
        programs, own, server = self.programs, self.own, self.place.server
        if server == "cluster":
            self._leave_out(
                "--on cluster starts nothing, and loads Websites",
                {
                    "--setup": programs.setup_kind, "--instances": programs.instances,
                    "--operator-program": programs.operator_program, "--sharder-program": programs.sharder_program,
                    "--latency": self.place.latency, "--operator": own.own, "--template": own.template,
                    "--apply": own.manifests, "--controller": own.controller,
                },
            )  # fmt: skip
        elif server == "simulation":
            self._leave_out(
                "--on simulation runs kubeshard's webhosting operator",
                {
                    "--program": programs.program == "go", "--operator-program": programs.operator_program == "go",
                    "--sharder-program": programs.sharder_program == "go", "--operator": own.own,
                    "--template": own.template, "--apply": own.manifests, "--ring": own.ring,
                    "--controller": own.controller,
                },
            )  # fmt: skip

    def _leave_out(self, because: str, options: Mapping[str, object]) -> None:
        if given := [name for name, value in options.items() if value]:
            raise ConfigurationError(f"{because}: leave out {', '.join(given)}")

    def setup(self) -> tuple[Setup, Callable[[str], Subject]]:
        """What runs where programs are started, and what makes the objects of a run."""
        from kubeshard_lab.experiment.setups import Setup

        programs, own = self.programs, self.own.own
        kind: Kind = programs.setup_kind or ("singleton" if own else "external")
        alone = kind == "singleton"
        subject, mine = self.own.subject(self.load.scenario, kind)
        if mine and (programs.workers or "go" in (programs.program, programs.operator_program)):
            raise ConfigurationError("--operator: its workers and its program are those of your module")
        setup = Setup(
            kind,
            programs.instances or (1 if alone else _INSTANCES),
            mine or programs.workers or (_SINGLETON_WORKERS if alone else _WORKERS),
            None if own else programs.operator,
            programs.sharder if kind == "external" else None,
            own or "",
        )
        setup.check()
        return setup, subject

    def installed(self) -> Setup:
        """What is said to run in a cluster; the rest is found there."""
        from kubeshard_lab.experiment.setups import Setup

        go = Path("go") if self.programs.program == "go" else None  # what is installed is not a file here
        return Setup("external", 0, self.programs.workers or _WORKERS, go, go)


def _program(whose: str, go: Path | None, role: str) -> Path | None:
    if whose == "kubeshard":
        return None
    if go is None:
        variable = "KUBESHARD_GO_SHARDER" if role == "sharder" else "KUBESHARD_GO_OPERATOR"
        raise ConfigurationError(f"name the Go project's {role} with --go-{role} or {variable}")
    return go.absolute()
