"""CronJobs: Jobs on a schedule. Tests that would take minutes run on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cluster_api import ClusterApi, owned_by, template
from test_cluster_events import said, until_told
from test_cluster_pretending import Cluster

from kubeshard.core.patches import MergePatch
from kubeshard.core.times import parse_time, second_time
from kubeshard_apiserver.controllers import Controllers
from kubeshard_lab.virtual_time import SleepsForever, run_virtual, virtual_time

CRON_JOB = "batch/v1/cronjobs/cj"


def cron_job(schedule: str = "*/5 * * * *", pretend: str = "succeed", **spec: Any) -> dict[str, Any]:
    pod = template()
    pod["spec"]["restartPolicy"] = "Never"
    pod["metadata"]["annotations"] = {"kubeshard.dev/pretend": pretend}
    labelled = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"template": pod}}
    return {
        "metadata": {"name": "cj"},
        "spec": {"schedule": schedule, "jobTemplate": labelled, **spec},
    }


@pytest.mark.system
async def test_a_job_is_created_when_it_is_due_and_reported_when_it_is_over(api: ClusterApi) -> None:
    made = await api.create("cronjobs", cron_job("@every 2s"))

    async def over() -> Any:
        found = await api.get("cronjobs/cj")
        status = found["status"]
        return "lastSuccessfulTime" in status and not status.get("active") and found

    found = await api.until(over, "a job is over")
    await api.patch("cronjobs/cj", {"spec": {"suspend": True}})
    job = (await api.items("jobs"))[0]
    meta = job["metadata"]
    due = parse_time(meta["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"])
    created = parse_time(made["metadata"]["creationTimestamp"])
    assert due is not None
    assert created is not None
    assert (due - created) % 2 == 0
    assert meta["name"] == f"cj-{int(due // 60)}"
    assert meta["labels"]["a"] == "b"
    assert meta["annotations"]["c"] == "d"
    reference = owned_by({**made, "kind": "CronJob", "apiVersion": "batch/v1"}, controller=True)
    assert meta["ownerReferences"] == [{**reference, "blockOwnerDeletion": True}]
    assert parse_time(found["status"]["lastScheduleTime"]) is not None
    assert found["status"]["lastSuccessfulTime"] >= job["status"]["completionTime"]


@pytest.mark.system
async def test_a_cron_job_tells_of_its_jobs(api: ClusterApi) -> None:
    await api.create("cronjobs", cron_job("@every 2s"))

    async def first() -> Any:
        return await api.items("jobs")

    name = (await api.until(first, "there is a job"))[0]["metadata"]["name"]
    await api.until_status(f"jobs/{name}", succeeded=1)

    async def told() -> Any:
        events = await api.items("events?fieldSelector=involvedObject.kind=CronJob")
        found = {said(each)[:3]: each["source"] for each in events}
        wanted = {
            ("Normal", "SuccessfulCreate", f"Created job {name}"),
            ("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: Complete"),
        }
        return wanted <= set(found) and found

    assert set(map(str, (await api.until(told, "it has told")).values())) == {
        "{'component': 'cronjob-controller'}"
    }


@pytest.mark.system
async def test_a_suspended_cron_job_creates_nothing(api: ClusterApi) -> None:
    await api.create("cronjobs", cron_job("@every 1s", suspend=True))
    await api.create("cronjobs", {**cron_job("@every 1s"), "metadata": {"name": "other"}})

    async def other() -> Any:
        return await api.items("jobs")

    for each in await api.until(other, "another one has a job"):
        assert each["metadata"]["ownerReferences"][0]["name"] == "other"
    await api.patch("cronjobs/cj", {"spec": {"suspend": False}})

    async def mine() -> Any:
        return [each for each in await api.items("jobs") if each["metadata"]["name"].startswith("cj-")]

    await api.until(mine, "the suspended one has a job")


@pytest.mark.system
async def test_a_cron_job_takes_its_jobs_with_it(api: ClusterApi) -> None:
    await api.create("cronjobs", cron_job("@every 1s"))

    async def job() -> Any:
        return await api.items("jobs")

    await api.until(job, "there is a job")
    await api.delete("cronjobs/cj", "Background")
    await api.until_count("jobs", 0)


async def test_a_schedule_that_never_comes_is_told_of(api: ClusterApi) -> None:
    await api.create("cronjobs", cron_job("0 0 31 2 *"))
    problem = "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second"
    await until_told(api, "CronJob", "cj", ("Warning", "InvalidSchedule", problem, 1))


def jobs(cluster: Cluster) -> list[int]:
    """Returns the scheduled times of the Jobs, in minutes of the cluster's clock."""
    return sorted(
        int(each["metadata"]["name"].removeprefix("cj-")) for each in cluster.items("batch/v1/jobs")
    )


async def until(cluster: Cluster, minute: float) -> None:
    """Waits until the cluster's clock shows this minute."""
    await asyncio.sleep(minute * 60 - cluster.server.clock.wall() + 1)


def first_minute(cluster: Cluster) -> int:
    """The beginning of the next hour."""
    return int(cluster.server.clock.wall() // 3600 + 1) * 60


@virtual_time
async def test_jobs_come_on_schedule_and_old_ones_go() -> None:
    cluster = Cluster()
    start = first_minute(cluster)
    async with Controllers(cluster.server):
        await until(cluster, start - 1)
        cluster.create("batch/v1/cronjobs", cron_job(successfulJobsHistoryLimit=2))
        await until(cluster, start + 6)
        assert jobs(cluster) == [start, start + 5]
        assert cluster.get(CRON_JOB)["status"]["lastScheduleTime"] == second_time((start + 5) * 60)
        await until(cluster, start + 31)
        assert jobs(cluster) == [start + 25, start + 30]


@virtual_time
async def test_failed_jobs_have_a_limit_of_their_own() -> None:
    cluster = Cluster()
    start = first_minute(cluster)
    async with Controllers(cluster.server):
        await until(cluster, start - 1)
        body = cron_job(pretend="fail", failedJobsHistoryLimit=1)
        body["spec"]["jobTemplate"]["spec"]["backoffLimit"] = 0
        cluster.create("batch/v1/cronjobs", body)
        await until(cluster, start + 16)
        assert jobs(cluster) == [start + 15]
        assert "lastSuccessfulTime" not in cluster.get(CRON_JOB)["status"]


@pytest.mark.parametrize(("policy", "left"), [("Allow", [0, 5, 10]), ("Forbid", [0]), ("Replace", [10])])
def test_a_policy_says_what_becomes_of_jobs_that_still_run(policy: str, left: list[int]) -> None:
    async def run() -> tuple[list[int], int, set[str]]:
        cluster = Cluster()
        start = first_minute(cluster)
        async with Controllers(cluster.server):
            await until(cluster, start - 1)
            cluster.create("batch/v1/cronjobs", cron_job(pretend="run", concurrencyPolicy=policy))
            await until(cluster, start + 11)
            reasons = {
                each["reason"]
                for each in cluster.items("v1/events")
                if each["involvedObject"]["kind"] == "CronJob"
            }
            active = cluster.get(CRON_JOB)["status"]["active"]
            return [each - start for each in jobs(cluster)], len(active), reasons

    found, active, reasons = run_virtual(run())
    assert (found, active) == (left, len(left))
    assert ("JobAlreadyActive" in reasons) is (policy == "Forbid")
    assert ("SuccessfulDelete" in reasons) is (policy == "Replace")


@virtual_time
async def test_a_forbidden_job_comes_when_the_one_before_it_is_over() -> None:
    cluster = Cluster()
    start = first_minute(cluster)
    async with Controllers(cluster.server):
        await until(cluster, start - 1)
        cluster.create("batch/v1/cronjobs", cron_job(pretend="run", concurrencyPolicy="Forbid"))
        await until(cluster, start + 12)
        assert jobs(cluster) == [start]
        cluster.server.delete(cluster.at(f"batch/v1/jobs/cj-{start}"))
        await asyncio.sleep(1)
        assert jobs(cluster) == [start + 10]


@virtual_time
async def test_of_the_times_that_were_missed_only_the_last_counts_and_only_within_the_deadline() -> None:
    cluster = Cluster()
    start = first_minute(cluster)
    cluster.create("batch/v1/cronjobs", cron_job())
    late = cron_job(startingDeadlineSeconds=60)
    late["metadata"]["name"] = "late"
    cluster.create("batch/v1/cronjobs", late)
    await until(cluster, start + 24)
    async with Controllers(cluster.server):
        await asyncio.sleep(1)
        assert jobs(cluster) == [start + 20]
        await until(cluster, start + 25.1)
        names = {each["metadata"]["name"] for each in cluster.items("batch/v1/jobs")}
        assert names == {f"cj-{start + 20}", f"cj-{start + 25}", f"late-{start + 25}"}


@virtual_time
async def test_a_time_zone_says_when_it_is_nine_o_clock() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("batch/v1/cronjobs", cron_job("0 9 * * *", timeZone="America/New_York"))
        # The year begins in winter, when it is 14:00 in Greenwich.
        await asyncio.sleep(14 * 3600 + 1)
        (job,) = cluster.items("batch/v1/jobs")
        due = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        assert due == "2026-01-01T09:00:00-05:00"


def test_a_suspended_cron_job_sets_no_timer() -> None:
    async def idle() -> None:
        cluster = Cluster()
        async with Controllers(cluster.server):
            cluster.create("batch/v1/cronjobs", cron_job())
            await asyncio.sleep(600)
            cluster.server.patch(cluster.at(CRON_JOB), MergePatch({"spec": {"suspend": True}}))
            await asyncio.Event().wait()

    with pytest.raises(SleepsForever):
        run_virtual(idle())
