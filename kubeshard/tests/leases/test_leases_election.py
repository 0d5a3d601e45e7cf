"""Leader election on virtual time, against a server in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable

import pytest
from lease_bench import LeaseServer, Process

from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.manager.leader_election import ElectionTiming, LeaderElection, LeaderElector
from kubeshard.runtime.watchdog import NoSignals, Watchdog
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import SeededRng


class Candidate(Process):
    """A process that works while it leads; the intervals in which it may act are recorded."""

    def __init__(
        self,
        server: LeaseServer,
        identity: str,
        *,
        watchdog: bool = True,
        watchdog_of_the_world: Callable[[], Watchdog] | None = None,
    ) -> None:
        super().__init__(server, identity)
        if watchdog_of_the_world:
            self.world = dataclasses.replace(self.world, watchdog=watchdog_of_the_world)
        election = LeaderElection(name="lock", namespace="ns", identity=identity, watchdog=watchdog)
        self.elector = LeaderElector(self.client(), election, self.metrics)
        self.stop = asyncio.Event()
        self.led: list[tuple[float, float]] = []
        self.reason = ""

    async def run(self, *, clean: bool = True) -> None:
        async with self.elector.held(self.health) as held:
            since = self.now
            lost, stop = asyncio.create_task(held.lost()), asyncio.create_task(self.stop.wait())
            await asyncio.wait([lost, stop], return_when=asyncio.FIRST_COMPLETED)
            self.led.append((since, self.now))
            if lost.done():
                self.reason = lost.result()
            elif clean:
                held.stopped_cleanly()
            lost.cancel()
            stop.cancel()


@virtual_time
async def test_the_first_candidate_leads_at_once_and_renews_under_a_user_agent_of_its_own() -> None:
    server = LeaseServer()
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(59)
    assert (server.holder, candidate.elector.leader) == ("a", "a")
    assert [at for at, _ in server.writes] == [2.0 * n for n in range(30)]
    assert {agent.split("/")[-1] for agent in server.agents} == {"leader-election"}
    assert server.lease is not None
    assert (server.lease.metadata.labels, server.lease.metadata.annotations) == (None, None)
    candidate.stop.set()
    await task
    assert candidate.led == [(0, 59)]
    assert candidate.elector.first


@virtual_time
async def test_a_second_candidate_takes_over_at_once_after_a_clean_stop() -> None:
    server = LeaseServer()
    first, second = Candidate(server, "a"), Candidate(server, "b")
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run())
        await settle()
        group.create_task(second.run())
        await asyncio.sleep(30)
        assert second.led == []
        assert second.elector.leader == "a"
        first.stop.set()
        await asyncio.sleep(5)
        assert server.holder == "b"
        second.stop.set()
    assert (first.elector.first, second.elector.first) == (True, False)
    assert first.led[0][1] <= second.led[0][0] <= first.led[0][1] + 4.4


@virtual_time
async def test_work_that_did_not_stop_cleanly_keeps_the_lease_from_others_until_it_expires() -> None:
    server = LeaseServer()
    first, second = Candidate(server, "a"), Candidate(server, "b")
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run(clean=False))
        await settle()
        group.create_task(second.run())
        await asyncio.sleep(30)
        first.stop.set()
        await asyncio.sleep(13)
        assert server.holder == "a"
        await asyncio.sleep(10)
        second.stop.set()
    # 15 s after the last renewal was seen, which was at most 2 s old.
    assert first.led[0][1] + 13 <= second.led[0][0] <= first.led[0][1] + 15 + 4.4


@virtual_time
async def test_leaders_say_what_ends_them_and_what_became_of_one_that_did_not_release_its_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = LeaseServer()
    caplog.set_level(logging.INFO, "kubeshard.leases")
    first, second, third = (Candidate(server, name) for name in "abc")
    first.stop.set()
    await first.run(clean=False)
    second.stop.set()
    await second.run()
    third.stop.set()
    await third.run()
    told = [(record.msg, record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    armed = [fields["watchdog"] for text, fields in told if text == "Acquired the Lease"]
    assert armed == ["kernel timer: exit code 137 after 10 s without renewal"] * 3
    (unreleased,) = [fields for text, fields in told if "did not release" in text]
    assert (unreleased["identity"], unreleased["holder"]) == ("b", "a")
    assert "its watchdog did 10 s after the last renewal: exit code 137" in unreleased["fate"]


@virtual_time
async def test_a_leader_without_watchdog_says_so_and_is_not_ended() -> None:
    candidate = Candidate(LeaseServer(), "a", watchdog=False)
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    candidate.server.edit(holder="b")
    await task
    assert candidate.led == [(0, 22)]
    assert candidate.watchdog.deadline is None


@virtual_time
async def test_where_no_watchdog_can_bite_nobody_becomes_a_candidate() -> None:
    def refuses() -> Watchdog:
        raise NoSignals

    candidate = Candidate(LeaseServer(), "a", watchdog_of_the_world=refuses)
    with pytest.raises(ConfigurationError, match=r"process 1 .* LeaderElection\(\.\.\., watchdog=False\)"):
        await candidate.run()
    candidate = Candidate(LeaseServer(), "a", watchdog=False, watchdog_of_the_world=refuses)
    task = asyncio.create_task(candidate.run())
    await settle()
    candidate.stop.set()
    await task
    assert candidate.led


@virtual_time
async def test_a_lease_that_is_deleted_while_its_leader_lives_goes_to_no_candidate_that_had_seen_it() -> None:
    server = LeaseServer()
    first, second = Candidate(server, "a"), Candidate(server, "b")
    first.watches = False
    async with asyncio.TaskGroup() as group:
        leading = group.create_task(first.run())
        await settle()
        waiting = group.create_task(second.run())
        for _ in range(20):
            await asyncio.sleep(3.7)
            server.delete()
            await asyncio.sleep(2.5)
            assert server.holder == "a"
        leading.cancel()
        waiting.cancel()
    assert second.led == []


@virtual_time
async def test_a_seized_lease_ends_the_leadership_at_the_next_renewal() -> None:
    candidate = Candidate(LeaseServer(), "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(20.5)
    candidate.server.edit(holder="b")
    await task
    assert candidate.led == [(0, 22)]
    assert candidate.reason == "the Lease is held by 'b'"
    assert candidate.server.holder == "b"
    assert candidate.metrics.slow == 1


@virtual_time
async def test_the_right_to_lead_ends_with_the_block_also_for_work_that_did_not_stop() -> None:
    candidate = Candidate(LeaseServer(), "a")
    async with candidate.elector.held(candidate.health) as held:
        held.check()
    with pytest.raises(NotOurs, match="no longer the leader"):
        held.check()


@virtual_time
async def test_candidates_of_one_declaration_have_fences_of_their_own() -> None:
    """A late write of the former leader's reconcilers does not pass because another manager leads."""
    server = LeaseServer()
    first, second = Candidate(server, "a"), Candidate(server, "b")
    election = LeaderElection(name="lock", namespace="ns", watchdog=False)
    for seed, each in enumerate((first, second)):  # so that they have identities of their own
        each.world = dataclasses.replace(each.world, rng=SeededRng(seed))
        each.elector = LeaderElector(each.client(), election, each.metrics)
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run())
        await settle()
        first.elector.fence.check()
        election.fence.check()
        first.stop.set()
        group.create_task(second.run())
        await asyncio.sleep(5)
        second.elector.fence.check()
        election.fence.check()
        with pytest.raises(NotOurs):
            first.elector.fence.check()
        second.stop.set()


@virtual_time
async def test_a_leader_that_has_not_renewed_for_long_counts_as_hung() -> None:
    candidate = Candidate(LeaseServer(), "a")
    assert not candidate.elector.hung()
    task = asyncio.create_task(candidate.run())
    await settle()
    assert not candidate.elector.hung()
    candidate.clock.suspend(36)
    assert candidate.elector.hung()
    await task
    assert not candidate.elector.hung()


@virtual_time
async def test_the_identity_is_host_name_and_uuid() -> None:
    candidate = Candidate(LeaseServer(), "")
    host, _, token = candidate.elector.identity.partition("_")
    assert host == candidate.world.host.name()
    assert token == "00000000-0000-4000-8000-000000000000"


def test_numbers_that_cannot_work_are_refused_with_what_they_are_for() -> None:
    with pytest.raises(ConfigurationError, match="leader election: renew deadline 20s"):
        ElectionTiming(renew_deadline=20.0)
