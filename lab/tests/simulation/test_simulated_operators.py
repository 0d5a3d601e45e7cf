"""An author's own operator, simulated: it holds, or the oracles say what does not."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import sys
import threading
import weakref
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, cast

import pytest

import kubeshard
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.cli.loading import load_manager, load_name
from kubeshard.cli.yaml_files import objects_in
from kubeshard.controller.context import Context
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.manager.leader_election import USER_AGENT
from kubeshard.shard.shard_lease import ShardFence
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.simulation.digest import Recorder
from kubeshard_lab.simulation.faults.injection import Conditions
from kubeshard_lab.simulation.history import Changed, Sent
from kubeshard_lab.simulation.operators import sealing
from kubeshard_lab.simulation.operators.families import Families
from kubeshard_lab.simulation.operators.loading import FreshImports
from kubeshard_lab.simulation.operators.oracles import OperatorOracles
from kubeshard_lab.simulation.operators.recording import OperatorRecorder
from kubeshard_lab.simulation.operators.running import difference, play_operator
from kubeshard_lab.simulation.operators.sealing import LeavesSimulation
from kubeshard_lab.simulation.operators.shape import Shape
from kubeshard_lab.simulation.operators.workload import Author
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.properties import OF_OPERATORS
from kubeshard_lab.simulation.running import drawn
from kubeshard_lab.simulation.script import Operator, Script, TimedFault
from kubeshard_lab.virtual_time import run_virtual

EXAMPLES = Path(__file__).parents[3] / "examples"
AUTHOR = Author(load_manager, load_name)

HEAD = """
import asyncio, itertools, logging, random, socket, subprocess, threading, time, uuid
from kubeshard import *
from kubeshard.core.patches import MergePatch
from kubeshard.crd import CustomResource

class DeskSpec(Struct):
    legs: int = 0

class DeskStatus(Struct):
    said: str = ""

@CustomResource()
class Desk(KubeObject, group="example.com", version="v1"):
    spec: DeskSpec = field(default_factory=DeskSpec)
    status: DeskStatus = field(default_factory=DeskStatus)

def managed(reconcile, when=when.generation_changed, **options):
    options = {"leader_election": LeaderElection(name="desks", namespace="default"), **options}
    desks = Controller(name="desk", reconciler=reconcile, primary=Watch(Desk, when=when), owns=[ConfigMap])
    return Manager([desks], **options)

async def label(ctx, desk, text):
    metadata = ObjectMeta(name=desk.metadata.name, namespace=desk.metadata.namespace)
    await ensure(ctx, ConfigMap(metadata=metadata, data={"text": text}), owner=desk)
"""


pytestmark = pytest.mark.usefixtures("authors_folder")


def operator(source: str, target: str = "manager", **options: Any) -> Operator:
    Path("desks.py").write_text(HEAD + dedent(source))
    return Operator(target=f"desks:{target}", **options)


def script(subject: Operator, *kinds: str, seed: int = 1, minutes: float = 1.0, objects: int = 4) -> Script:
    shape = Shape.of(FreshImports(subject.target, load_manager).manager())
    return drawn(Script(seed=seed, minutes=minutes, objects=objects, operator=subject), kinds or shape.faults)


def calm(subject: Operator, objects: int = 2) -> SimulationResult:
    """Some seconds without faults."""
    return play_operator(Script(seed=1, minutes=0.3, objects=objects, operator=subject), AUTHOR)


GOOD = """
async def reconcile(ctx, desk):
    await label(ctx, desk, str(desk.spec.legs))
manager = managed(reconcile)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_the_first_operator_of_the_readme_holds_under_every_fault(seed: int) -> None:
    definition = tuple(each.manifest for each in objects_in(EXAMPLES / "first_operator.yaml"))
    target = f"{EXAMPLES / 'first_operator.py'}:manager"
    result = play_operator(
        script(Operator(target=target, manifests=definition), seed=seed, minutes=3), AUTHOR
    )
    assert result.breaks == []
    assert result.counts["reconciles"] > 100
    assert result.counts["writes"] > 20


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["shard", "both"])
def test_a_sharded_operator_holds_with_its_ring_and_sharders(mode: str) -> None:
    source = f"""
    async def reconcile(ctx, desk):
        await label(ctx, desk, str(desk.spec.legs))
    def make():
        desks = Controller(
            name="desk", reconciler=reconcile,
            primary=Watch(Desk, sharded=True), owns=[Watch(ConfigMap, sharded=True)],
        )
        return Manager([desks], sharding=Sharding("desks", namespace="default", mode={mode!r}))
    """
    result = play_operator(script(operator(source, "make"), "kill", "scale", "pause"), AUTHOR)
    assert result.breaks == []
    shards = {entry.owner[1] for entry in result.history if hasattr(entry, "owner")}
    assert len(shards - {""}) > 1


@pytest.mark.nightly
def test_objects_of_a_ring_that_expire_are_deleted_by_their_owners() -> None:
    source = """
    from datetime import timedelta
    async def reconcile(ctx, desk):
        await label(ctx, desk, str(desk.spec.legs))
    def make():
        desks = Controller(
            name="desk", reconciler=reconcile, owns=[Watch(ConfigMap, sharded=True)],
            primary=Watch(Desk, sharded=True, when=when.generation_changed),
            expires=lambda desk: desk.metadata.created + timedelta(seconds=40),
        )
        return Manager([desks], sharding=Sharding("desks", namespace="default", mode="both"))
    """
    result = play_operator(script(operator(source, "make"), "kill", "pause", "lost", "stale_front"), AUTHOR)
    assert result.breaks == []
    ours = {entry.request for entry in result.history if isinstance(entry, Sent)}
    deleted = [
        entry
        for entry in result.history
        if isinstance(entry, Changed) and entry.kind == "main" and entry.existed and not entry.exists
    ]
    assert len([entry for entry in deleted if entry.request in ours]) > 2


@pytest.mark.nightly
def test_every_process_has_modules_of_its_own() -> None:
    """Also those that the module imports, and the metrics that it registers."""
    Path("counting.py").write_text(
        "import itertools\nfrom prometheus_client import Counter\nNUMBERS = itertools.count()\n"
        "DESKS = Counter('desks_seen', 'of this process')\n"
    )
    source = """
    from counting import DESKS, NUMBERS
    async def reconcile(ctx, desk):
        DESKS.inc()
        await label(ctx, desk, str(next(NUMBERS)))
    manager = managed(reconcile, leader_election=None)
    """
    result = play_operator(script(operator(source), "kill", "restart", objects=2), AUTHOR)
    first = [entry for entry in result.history if type(entry).__name__ == "Began"]
    assert len({entry.process for entry in first}) > 1
    assert result.counts["ends: killed"] > 0
    assert set(result.broken) <= {"endless writes"}


@pytest.mark.nightly
def test_a_manager_and_a_function_that_makes_one_give_the_same_run() -> None:
    digests = []
    for target in ("manager", "make"):
        recorder = Recorder(lines=False)
        subject = operator(GOOD + "def make(): return managed(reconcile)\n", target)
        play_operator(script(subject, "kill", "watches_silent"), AUTHOR, digest=recorder)
        digests.append(recorder.digest)
    assert digests[0] == digests[1]


@pytest.mark.parametrize("invariant", ["always", "eventually"])
def test_an_invariant_of_the_author_is_reported_once_with_what_it_says(
    invariant: str, authors_folder: Path
) -> None:
    (authors_folder / "holds.py").write_text(
        "from desks import ConfigMap, Desk\n"
        "def no_maps(snapshot):\n"
        "    for desk in snapshot.list(Desk):\n"
        "        assert not snapshot.list(ConfigMap, owner=desk), f'{desk.metadata.name} has a map'\n"
    )
    result = calm(operator(GOOD, **{invariant: ("holds:no_maps",)}))
    (found,) = result.breaks
    assert found.partition(" ")[2].startswith(f"{invariant}: no_maps: desk-")
    assert found.endswith("has a map")


@pytest.mark.parametrize(
    ("invariant", "says", "about"),
    [
        ("always", "there are maps", r"desk-\d"),
        ("eventually", "default/desk-1, of all, has a map", "desk-1"),
        ("eventually", "there are maps", ""),
    ],
)
def test_a_violated_invariant_is_about_what_was_written_or_else_about_what_its_message_names(
    invariant: str, says: str, about: str, authors_folder: Path
) -> None:
    (authors_folder / "holds.py").write_text(
        "from desks import ConfigMap\n"
        "def no_maps(snapshot):\n"
        "    maps = [each for each in snapshot.list(ConfigMap) if each.metadata.owner_references]\n"
        f"    assert not maps, {says!r}\n"
    )
    result = calm(operator(GOOD, **{invariant: ("holds:no_maps",)}))
    assert re.fullmatch(about, result.main.about)


TWICE = """
async def reconcile(ctx, desk):
    maps = [each.data or {} for each in ctx.cache.list(ConfigMap, "default")]
    if desk.metadata.uid not in [data.get("of") for data in maps]:
        from kubeshard.core.owners import with_owner
        metadata = with_owner(ObjectMeta(generate_name="map-", namespace="default"), desk, controller=True)
        await ctx.client.create(ConfigMap(metadata=metadata, data={"of": desk.metadata.uid}))
manager = managed(reconcile)
"""


LATE = """
async def reconcile(ctx, desk):
    from kubeshard.core.errors import NotFound
    try:
        await ctx.client.patch(Desk, "gone", "default", MergePatch({"metadata": {"labels": {"a": "b"}}}))
    except NotFound:
        await label(ctx, desk, "the server said that it is gone")
manager = managed(reconcile)
"""


def test_a_write_to_an_object_that_is_gone_is_answered_as_a_server_does() -> None:
    result = calm(operator(LATE))
    assert result.breaks == []
    assert result.counts["writes"] > 0
    assert not any(count for name, count in result.counts.items() if "KeyError" in name)


def test_a_create_that_follows_from_a_stale_read_is_noticed() -> None:
    stale = tuple(TimedFault(float(after), "stale_front", f"1/{after}") for after in (2, 20, 40, 60))
    found = list[str]()
    for seed in range(1, 7):  # whether a run meets such a server is drawn
        script = Script(seed=seed, minutes=2, objects=3, operator=operator(TWICE), faults=stale)
        found += play_operator(script, AUTHOR, until="stale read").breaks
        if found:
            break
    assert "its cache lacks default/map-" in found[0]


@pytest.mark.parametrize(
    ("source", "oracle", "message"),
    [
        (
            """
            async def reconcile(ctx, desk):
                if desk.metadata.name == "desk-1":
                    raise ValueError("never")
                await label(ctx, desk, "a")
            manager = managed(reconcile)
            """,
            "forgotten",
            "desk-1 was never reconciled successfully: ValueError: never",
        ),
        (
            """
            async def reconcile(ctx, desk):
                await label(ctx, desk, str(ctx.clock.monotonic()))
                return Result(requeue_after=5.0)
            manager = managed(reconcile)
            """,
            "endless writes",
            "although nothing changes",
        ),
        (
            """
            async def reconcile(ctx, desk):
                await label(ctx, desk, "a")
                return Result(requeue_after=0.5)
            manager = managed(reconcile)
            """,
            "hot loop",
            "although nothing changes",
        ),
        (
            """
            async def reconcile(ctx, desk):
                await label(ctx, desk, "a")
            async def fails():
                await asyncio.sleep(25)
                raise RuntimeError("no fuel")
            manager = managed(reconcile, runnables=[Runnable("tank", fails)])
            """,
            "crash",
            "no fuel",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_what_no_operator_should_do_is_noticed_without_an_invariant(
    source: str, oracle: str, message: str
) -> None:
    result = calm(operator("from kubeshard.manager import Runnable\n" + dedent(source)))
    assert result.broken[oracle] > 0, result.breaks
    assert any(message in line for line in result.breaks)


def test_objects_of_one_name_in_several_namespaces_are_several_objects() -> None:
    source = """
    from kubeshard.core import Namespace
    async def reconcile(ctx, desk):
        now, space = ctx.clock.wall(), f"ns-{desk.metadata.name}"
        app = ConfigMap(metadata=ObjectMeta(name="app", namespace=space), data={"at": str(now // 25)})
        await ctx.apply(Namespace(metadata=ObjectMeta(name=space)), app)
        return Result(requeue_after=25 - now % 25)
    desks = Controller(name="desk", reconciler=reconcile, primary=Desk, applies=[Namespace, ConfigMap])
    manager = Manager([desks], leader_election=LeaderElection(name="desks", namespace="default"))
    """
    assert calm(operator(source), objects=4).breaks == []


SAYS = """
async def say(ctx, desk):
    patch = MergePatch({"metadata": {"annotations": {"said": str(ctx.clock.wall())}}})
    await ctx.client.patch(Desk, desk.metadata.name, desk.metadata.namespace, patch)

async def says(ctx, desk):
    await say(ctx, desk)
    return Result(requeue_after=1.0)

async def listens(ctx, desk):
    return Result(requeue_after=1.0)

async def talks(ctx, desk):
    while True:
        await say(ctx, desk)
        await asyncio.sleep(1)

def manager(reconciler, daemons=()):
    desks = Controller(name="desk", reconciler=reconciler, primary=Desk, daemons=daemons)
    return Manager([desks], leader_election=LeaderElection(name="desks", namespace="default"))

def by_reconciles():
    return manager(says)

def by_a_daemon():
    return manager(listens, [Daemon(talks)])
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("writes", "noticed"), [("by_reconciles", True), ("by_a_daemon", False)])
def test_a_reconcile_has_to_see_what_reconciles_have_written_and_not_what_a_daemon_has(
    writes: str, noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(OwnWrites, "settled", at_once)
    silent = tuple(TimedFault(2.0, "watches_silent", f"1/{number}") for number in range(3))
    result = play_operator(
        Script(seed=1, minutes=0.5, objects=1, operator=operator(SAYS, writes), faults=silent),
        AUTHOR,
        until="stale read",
    )
    assert bool(result.broken["stale read"]) is noticed


@pytest.mark.quick
def test_two_instances_at_work_on_one_object_are_noticed() -> None:
    source = """
    async def reconcile(ctx, desk):
        await asyncio.sleep(100)
    manager = managed(
        reconcile, leader_election=LeaderElection(name="desks", namespace="default", watchdog=False)
    )
    """
    leader = TimedFault(1.0, "pause", "1/2", 3.0)
    result = play_operator(
        Script(seed=1, minutes=2, operator=operator(source), faults=(leader,)), AUTHOR, until="overlap"
    )
    assert result.broken["overlap"], result.breaks


@pytest.mark.parametrize(
    ("sender", "noticed"), [("s1~1", False), ("s0~1", True)], ids=["leader", "former one"]
)
def test_a_write_is_noticed_that_a_reconcile_sends_while_another_instance_leads(
    sender: str, noticed: bool
) -> None:
    shape = Shape.of(FreshImports(operator(GOOD).target, load_manager).manager())
    result = SimulationResult()

    async def scene() -> None:
        async with SimulatedCluster() as world:
            await world.install()
            Conditions(world, seed=1)
            families = Families(shape.resources)
            oracles = OperatorOracles(world, result, "", shape, families, {})
            oracles.recorder = OperatorRecorder(world, shape, families)
            leader, process = Process(world, "s1~1"), world.processes.get(sender) or Process(world, sender)

            async def reconcile(ctx: Any, desk: Any) -> None:
                metadata = ObjectMeta(name="map", namespace="team")
                await process.client().create(ConfigMap(metadata=metadata))

            (controller,) = shape.controllers
            (watched,) = oracles.watching(sender, controller).wrappers
            election = leader.client().with_user_agent(USER_AGENT)
            held = LeaseSpec(holder_identity="s1")
            await election.create(Lease(metadata=ObjectMeta(name="desks", namespace="ops"), spec=held))
            desk = Thing(metadata=ObjectMeta(name="desk-1", namespace="team", uid="1", resource_version="1"))
            await watched(reconcile)(cast(Context, SimpleNamespace(key=Key("team", "desk-1"))), desk)

    run_virtual(scene(), limit=60)
    assert result.broken == ({"stale leader": 1} if noticed else {})


@pytest.mark.long
def test_a_write_to_an_object_of_another_shard_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
    async def reconcile(ctx, desk):
        await ctx.client.patch(Desk, "desk-0", "default", MergePatch({"spec": {"legs": random.randrange(1000)}}))
    desks = Controller(name="desk", reconciler=reconcile, primary=Watch(Desk, sharded=True))
    manager = Manager([desks], sharding=Sharding("desks", namespace="default", mode="both"))
    """
    monkeypatch.setattr(ShardFence, "covers", lambda *_: False)
    result = play_operator(
        Script(seed=1, minutes=1, objects=6, operator=operator(source)), AUTHOR, until="stale write"
    )
    assert result.broken["stale write"], result.breaks


def test_an_operator_that_is_not_repeatable_is_told_with_the_first_event_that_differs() -> None:
    source = """
    async def reconcile(ctx, desk):
        await label(ctx, desk, str(time.time_ns()))
    manager = managed(reconcile)
    """
    subject = Script(seed=1, minutes=0.2, objects=2, operator=operator(source))
    recorder = Recorder(lines=False)
    play_operator(subject, AUTHOR, digest=recorder)
    assert "POST /api/v1/namespaces/default/configmaps" in difference(subject, AUTHOR, recorder)


@pytest.mark.parametrize(
    "value",
    [
        "uuid.uuid4()",
        pytest.param("random.random()", marks=pytest.mark.nightly),
        pytest.param("__import__('secrets').token_hex(8)", marks=pytest.mark.nightly),
        pytest.param("os.urandom(4).hex()", marks=pytest.mark.nightly),
    ],
)
def test_random_numbers_of_python_are_repeatable(value: str) -> None:
    source = f"""
    import os
    async def reconcile(ctx, desk):
        await label(ctx, desk, str({value}))
    manager = managed(reconcile)
    """
    subject = Script(seed=1, minutes=0.2, objects=2, operator=operator(source))
    recorder = Recorder(lines=False)
    play_operator(subject, AUTHOR, digest=recorder)
    assert difference(subject, AUTHOR, recorder) == ""


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("time.sleep(1)", "sleeps in real time: await asyncio.sleep instead"),
        ("threading.Thread(target=print).start()", "starts a thread: threads are not simulated"),
        ("socket.create_connection(('127.0.0.1', 9))", "looks up a host: only the API server is simulated"),
        (
            "await asyncio.open_connection('127.0.0.1', 9)",
            "opens a connection: only the API server is simulated",
        ),
        ("subprocess.run(['true'])", "starts a program: other programs are not simulated"),
    ],
    ids=["sleep", "thread", "socket", "stream", "program"],
)
def test_what_leaves_the_simulation_is_named_with_its_line(statement: str, message: str) -> None:
    source = f"async def reconcile(ctx, desk):\n    {statement}\nmanager = managed(reconcile)\n"
    line = (HEAD + source).splitlines().index(f"    {statement}") + 1
    with pytest.raises(LeavesSimulation, match=f"desks.py:{line} {message}"):
        calm(operator(source))


SWALLOWING = """while True:
        try: await asyncio.sleep(0)
        except asyncio.CancelledError: pass"""
COMPUTING = "await label(ctx, desk, max(str(n) for n in itertools.count()))"
IN_A_LIBRARY = (
    "vars(log := logging.getLogger('endless')).update(filters=itertools.repeat(bool)); log.error('')"
)


@pytest.mark.parametrize(
    "endless",
    [
        "while True: pass",
        "while True: await asyncio.sleep(0)",
        SWALLOWING,
        COMPUTING,
        IN_A_LIBRARY,
    ],
    ids=["busy", "never waiting", "ignoring cancellation", "computing", "in a library that holds locks"],
)
def test_a_reconcile_that_never_waits_ends_the_simulation(
    endless: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "STUCK_AFTER", 0.5)
    source = f"async def reconcile(ctx, desk):\n    {endless}\nmanager = managed(reconcile)\n"
    lines = (HEAD + source).splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.strip() == endless.splitlines()[0])
    places = "|".join(str(first + number) for number in range(len(endless.splitlines())))
    with pytest.raises(LeavesSimulation, match=rf"desks.py:({places}) went on .* no virtual time passed"):
        calm(operator(source))
    # What did not end is collected here, so that what that raises does not look like the fault of a later test.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    gc.collect()


def test_a_simulation_that_was_told_to_end_and_goes_on_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[LeavesSimulation] = []
    watch = sealing._Watch(told.append)
    monkeypatch.setattr(watch, "every", lambda seconds: None)

    async def scene() -> None:
        watch.check(0, None)
        for _ in range(sealing.STUCK_CHECKS):
            watch.check(0, None)
        with pytest.raises(sealing._Stuck):
            watch.check(0, None)
        for _ in range(sealing.ENDING_CHECKS):
            await asyncio.sleep(1)
            watch.check(0, None)
        await asyncio.sleep(1)
        with pytest.raises(sealing._Stuck):
            watch.check(0, None)

    run_virtual(scene(), limit=60)
    assert len(told) == 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "file"), [("__del__", "desks.py"), ("_remove", inspect.getfile(weakref.WeakSet))]
)
def test_nothing_is_interrupted_where_the_interpreter_ignores_exceptions(
    name: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In finalizers and in callbacks of weak references; what is endless itself is interrupted in the end."""
    watch = sealing._Watch(lambda _: None)
    monkeypatch.setattr(watch, "every", lambda seconds: None)
    running: dict[str, Any] = {}
    exec(compile(f"def {name}(check): check(0, __import__('sys')._getframe())", file, "exec"), running)

    async def scene() -> None:
        watch.check(0, None)
        for _ in range(2 * sealing.STUCK_CHECKS):
            running[name](watch.check)
        with pytest.raises(sealing._Stuck):
            running[name](watch.check)

    run_virtual(scene(), limit=60)


@pytest.mark.quick
def test_what_is_installed_beside_the_standard_library_or_kubeshard_is_the_authors() -> None:
    stdlib, home = Path(threading.__file__).parent.resolve(), Path(kubeshard.__file__).parent.resolve()
    for theirs in ("site-packages/desks.py", "dist-packages/desks/chairs.py"):
        assert sealing._is_authors(str(stdlib / theirs))
    assert sealing._is_authors(f"{home}_desks{os.sep}chairs.py")
    for ours in (stdlib / "threading.py", home / "ring" / "assignment.py"):
        assert not sealing._is_authors(str(ours))


BLOCKING = """
class Desks(BlockingReconciler[Desk]):
    def reconcile(self, ctx, desk): ...
manager = managed(Desks())
"""
NAMED = """
def make():
    desks = Controller(name="desk", reconciler=Desks(), primary=Watch(Desk, sharded=True))
    return Manager([desks], sharding=Sharding("desks", name="one", namespace="default"))
class Desks(Reconciler[Desk]):
    async def reconcile(self, ctx, desk): ...
manager = make()
"""
OF_MAPS = """
async def reconcile(ctx, a_map): ...
manager = Manager([Controller(name="map", reconciler=reconcile, primary=ConfigMap)])
"""
REQUIRED = """
class ChairSpec(Struct):
    code: __import__("typing").Annotated[str, __import__("msgspec").Meta(pattern="^x")]
@CustomResource()
class Chair(KubeObject, group="example.com", version="v1"):
    spec: ChairSpec
async def reconcile(ctx, chair): ...
manager = Manager([Controller(name="chair", reconciler=reconcile, primary=Chair)])
"""


@pytest.mark.quick
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BLOCKING, "a BlockingReconciler works in threads, which are not simulated"),
        (NAMED, "every instance would be the shard one: leave Sharding"),
        (OF_MAPS, "there is no object to work on: give --template with a ConfigMap"),
        (REQUIRED, "no value can be made up for Chair.spec.code: give an object with --template"),
    ],
    ids=["blocking", "named shard", "no object", "no value"],
)
def test_what_cannot_be_simulated_is_a_mistake_in_one_line(source: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as found:
        calm(operator(source))
    assert "\n" not in str(found.value)


@pytest.mark.quick
def test_objects_can_come_from_a_template() -> None:
    template = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: $name, namespace: team}\ndata: {v: $random}\n"
    )
    source = """
    SEEN = {}
    async def reconcile(ctx, a_map):
        assert a_map.metadata.namespace == "kube-system" or a_map.data
    manager = Manager([Controller(name="map", reconciler=reconcile, primary=ConfigMap)])
    """
    result = calm(operator(source, templates=(template,)))
    assert result.breaks == []
    assert result.counts["reconciles"] > 2


def test_no_property_of_operators_is_left_out_of_the_tests() -> None:
    here = Path(__file__).read_text()
    assert [each.name for each in OF_OPERATORS if f'"{each.name}"' not in here] == []
