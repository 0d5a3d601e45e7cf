"""Jobs and CronJobs."""

import pytest
from conformance_workloads import (
    LABELS,
    NOT_NEGATIVE,
    SELECTOR,
    cron_job,
    invalid,
    job,
    required,
    stored_template,
    template,
    unsupported,
)

UID_LABEL = "batch.kubernetes.io/controller-uid"


@pytest.fixture
def jobs(ns):
    return f"/apis/batch/v1/namespaces/{ns}/jobs"


@pytest.fixture
def cron_jobs(ns):
    return f"/apis/batch/v1/namespaces/{ns}/cronjobs"


async def test_a_minimal_job(api, jobs):
    made = await api.create(jobs, job())
    uid = made.meta["uid"]
    labels = {
        **LABELS,
        "job-name": "a",
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid,
        UID_LABEL: uid,
    }
    assert made["spec"] == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "selector": {"matchLabels": {UID_LABEL: uid}},
        "manualSelector": False,
        "template": {**stored_template(restartPolicy="Never"), "metadata": {"labels": labels}},
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert made["status"] == {}
    assert made.meta["labels"] == labels
    assert made.meta["generation"] == 1


async def test_labels_of_a_job_stay_as_they_were_given(api, jobs):
    made = await api.create(jobs, {**job(), "metadata": {"name": "a", "labels": {"b": "c"}}})
    assert made.meta["labels"] == {"b": "c"}


async def test_a_job_without_labels_has_those_that_its_pods_get(api, jobs):
    bare = {**template(restartPolicy="Never"), "metadata": {}}
    made = await api.create(jobs, job(template=bare))
    labels = {
        UID_LABEL: made.meta["uid"],
        "controller-uid": made.meta["uid"],
        "batch.kubernetes.io/job-name": "a",
        "job-name": "a",
    }
    assert made["spec"]["template"]["metadata"] == {"labels": labels}
    assert made.meta["labels"] == labels
    more = await api.merge(f"{jobs}/a", {"metadata": {"labels": {"b": "c"}}})
    assert more.meta["labels"] == {**labels, "b": "c"}
    (fields,) = [entry["fieldsV1"]["f:metadata"] for entry in more.meta["managedFields"]]
    assert fields == {"f:labels": {"f:b": {}}}


async def test_parallel_jobs_have_no_completions(api, jobs):
    made = await api.create(jobs, job(parallelism=3))
    assert "completions" not in made["spec"]


async def test_a_selector_of_ones_own_is_kept_when_it_is_wanted(api, jobs):
    made = await api.create(jobs, job(manualSelector=True, selector=SELECTOR))
    assert made["spec"]["selector"] == SELECTOR
    assert made["spec"]["template"]["metadata"] == {"labels": LABELS}


async def test_a_selector_of_ones_own_is_refused_otherwise(api, jobs):
    refused = await api.create(jobs, job(selector=SELECTOR))
    assert refused.refusal == (422, "Invalid")
    ((field, reason, message),) = refused.causes
    assert (field, reason) == ("spec.selector", "FieldValueInvalid")
    assert message.endswith("`selector` not auto-generated")


async def test_a_wanted_selector_must_be_there(api, jobs):
    refused = await api.create(jobs, job(manualSelector=True))
    assert refused.causes == {
        required("spec.selector"),
        invalid(
            "spec.template.metadata.labels", '{"app":"a"}', "`selector` does not match template `labels`"
        ),
    }


async def test_a_job_without_spec(api, jobs):
    refused = await api.create(jobs, {"metadata": {"name": "a"}})
    assert refused.causes == {
        required("spec.template.spec.containers"),
        required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'),
    }


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"template": template(restartPolicy="Always")},
            {required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')},
        ),
        ({"parallelism": -1}, {invalid("spec.parallelism", "-1", NOT_NEGATIVE)}),
        ({"completions": -1}, {invalid("spec.completions", "-1", NOT_NEGATIVE)}),
        ({"backoffLimit": -1}, {invalid("spec.backoffLimit", "-1", NOT_NEGATIVE)}),
        ({"activeDeadlineSeconds": -1}, {invalid("spec.activeDeadlineSeconds", "-1", NOT_NEGATIVE)}),
        ({"ttlSecondsAfterFinished": -1}, {invalid("spec.ttlSecondsAfterFinished", "-1", NOT_NEGATIVE)}),
        (
            {"completionMode": "x"},
            {unsupported("spec.completionMode", '"x"', "NonIndexed", "Indexed")},
        ),
        (
            {"completionMode": "Indexed", "parallelism": 2},
            {required("spec.completions", "when completion mode is Indexed")},
        ),
        (
            {"backoffLimitPerIndex": 1},
            {invalid("spec.backoffLimitPerIndex", "1", "requires indexed completion mode")},
        ),
        (
            {"podReplacementPolicy": "x"},
            {unsupported("spec.podReplacementPolicy", '"x"', "Failed", "TerminatingOrFailed")},
        ),
        (
            {"managedBy": "x"},
            {invalid("spec.managedBy", '"x"', 'must be a domain-prefixed path (such as "acme.io/foo")')},
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{"action": "x", "onExitCodes": {"operator": "In", "values": [0]}}]
                }
            },
            {
                unsupported(
                    "spec.podFailurePolicy.rules[0].action", '"x"', "Count", "FailIndex", "FailJob", "Ignore"
                ),
                invalid(
                    "spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
                    "0",
                    "must not be 0 for the In operator",
                ),
            },
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_job_must_be(api, jobs, spec, causes):
    refused = await api.create(jobs, job(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_pods_of_an_indexed_job_can_be_named(api, jobs):
    name = "k" * 63
    refused = await api.create(jobs, job(name, completionMode="Indexed", completions=5, parallelism=1))
    problem = f"will not able to create pod with invalid DNS label: {name}-4"
    assert refused.causes == {invalid("metadata.name", f'"{name}"', problem)}


async def test_the_template_of_a_job_cannot_be_changed(api, jobs):
    await api.create(jobs, job())
    refused = await api.merge(f"{jobs}/a", {"spec": {"template": {"metadata": {"labels": {"b": "c"}}}}})
    assert refused.refusal == (422, "Invalid")
    # The message shows the template as the server's internal types.
    ((field, reason, message),) = refused.causes
    assert (field, reason) == ("spec.template", "FieldValueInvalid")
    assert message.endswith("field is immutable")


async def test_a_suspended_job_may_still_be_told_where_to_run(api, jobs):
    await api.create(jobs, job(suspend=True))
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    assert (await api.merge(f"{jobs}/a", patch)).meta["generation"] == 2


async def test_completions_of_a_job_cannot_be_changed(api, jobs):
    await api.create(jobs, job())
    refused = await api.merge(f"{jobs}/a", {"spec": {"completions": 2}})
    assert refused.causes == {invalid("spec.completions", "2", "field is immutable")}


async def test_of_an_indexed_job_completions_and_parallelism_change_together(api, jobs):
    await api.create(jobs, job(completionMode="Indexed", completions=2, parallelism=2))
    refused = await api.merge(f"{jobs}/a", {"spec": {"completions": 3}})
    problem = "can only be modified in tandem with spec.parallelism"
    assert refused.causes == {invalid("spec.completions", "3", problem)}
    changed = await api.merge(f"{jobs}/a", {"spec": {"completions": 3, "parallelism": 3}})
    assert changed.meta["generation"] == 2


async def test_a_job_can_be_suspended_and_its_parallelism_changed(api, jobs):
    await api.create(jobs, job())
    changed = await api.merge(f"{jobs}/a", {"spec": {"suspend": True, "parallelism": 0}})
    assert changed.meta["generation"] == 2


def condition(kind):
    return {
        "type": kind,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        ({"active": -1}, {invalid("status.active", "-1", NOT_NEGATIVE)}),
        ({"ready": 1}, {invalid("status.ready", "1", "cannot set more ready pods than active")}),
        (
            {"completionTime": "2026-01-01T00:00:00Z"},
            {
                invalid(
                    "status.completionTime",
                    '"2026-01-01T00:00:00Z"',
                    "cannot set completionTime when there is no Complete=True condition",
                )
            },
        ),
        (
            {"active": 1, "conditions": [condition("Complete")]},
            {
                required("status.completionTime", "completionTime is required for Complete jobs"),
                required("status.startTime", "startTime is required for finished job"),
                invalid("status.active", "1", "active>0 is invalid for finished job"),
                (
                    "status.conditions",
                    "FieldValueInvalid",
                    "Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                ),
            },
        ),
        (
            {"startTime": "2026-01-01T00:00:00Z", "conditions": [condition("Failed")]},
            {
                (
                    "status.conditions",
                    "FieldValueInvalid",
                    "Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
                )
            },
        ),
    ],
)
async def test_what_the_status_of_a_job_must_be(api, jobs, status, causes):
    await api.create(jobs, job())
    refused = await api.merge(f"{jobs}/a/status", {"status": status})
    assert refused.causes == causes


async def test_a_job_that_is_complete_stays_so(api, jobs):
    await api.create(jobs, job())
    status = {
        "succeeded": 1,
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:01Z",
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }
    done = await api.merge(f"{jobs}/a/status", {"status": status})
    assert done["status"] == status
    refused = await api.merge(
        f"{jobs}/a/status",
        {"status": {"conditions": [condition("SuccessCriteriaMet")], "completionTime": None}},
    )
    assert (
        "status.conditions",
        "FieldValueInvalid",
        "Invalid value: cannot disable the terminal Complete=True condition",
    ) in refused.causes
    fewer = await api.merge(f"{jobs}/a/status", {"status": {"succeeded": 0}})
    assert fewer.causes == {invalid("status.succeeded", "0", "cannot decrease the succeeded counter")}


async def test_jobs_are_selected_by_how_many_pods_succeeded(api, jobs):
    await api.create(jobs, job())
    await api.create(jobs, job("b"))
    await api.merge(f"{jobs}/b/status", {"status": {"succeeded": 1}})
    for count, names in (("0", ["a"]), ("1", ["b"])):
        found = await api.get(jobs, fieldSelector=f"status.successful={count}")
        assert [item["metadata"]["name"] for item in found["items"]] == names
    refused = await api.get(jobs, fieldSelector="status.failed=1")
    assert refused.message == 'field label "status.failed" not supported for Job'


async def test_a_minimal_cron_job(api, cron_jobs):
    made = await api.create(cron_jobs, cron_job())
    assert made["spec"] == {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "jobTemplate": {"metadata": {}, "spec": {"template": stored_template(restartPolicy="Never")}},
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    assert made["status"] == {}
    assert made.meta["generation"] == 1


async def test_a_cron_job_without_spec(api, cron_jobs):
    refused = await api.create(cron_jobs, {"metadata": {"name": "a"}})
    path = "spec.jobTemplate.spec.template.spec"
    assert refused.causes == {
        required("spec.schedule"),
        required(f"{path}.containers"),
        required(f"{path}.restartPolicy", 'valid values: "OnFailure", "Never"'),
    }


@pytest.mark.parametrize(
    "schedule",
    ["0 0 * * *", "*/5 * * * *", "1,2-3,4/5 * ? JAN-MAR sun", "@daily", "@every 1h30m", "@every 1.5h"],
)
async def test_a_schedule(api, cron_jobs, schedule):
    made = await api.create(cron_jobs, cron_job(schedule=schedule))
    assert made["spec"]["schedule"] == schedule


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("x", "expected exactly 5 fields, found 1: [x]"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("0 0 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing \\"a\\": invalid syntax'),
        ("@foo", "unrecognized descriptor: @foo"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration \\"x\\"'),
        ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
    ],
)
async def test_what_is_no_schedule(api, cron_jobs, schedule, problem):
    refused = await api.create(cron_jobs, cron_job(schedule=schedule))
    assert refused.causes == {invalid("spec.schedule", f'"{schedule}"', problem.replace("\\", ""))}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"concurrencyPolicy": "x"},
            {unsupported("spec.concurrencyPolicy", '"x"', "Allow", "Forbid", "Replace")},
        ),
        ({"startingDeadlineSeconds": -1}, {invalid("spec.startingDeadlineSeconds", "-1", NOT_NEGATIVE)}),
        ({"failedJobsHistoryLimit": -1}, {invalid("spec.failedJobsHistoryLimit", "-1", NOT_NEGATIVE)}),
        ({"timeZone": "No/Where"}, {invalid("spec.timeZone", '"No/Where"', "unknown time zone No/Where")}),
        ({"timeZone": ""}, {invalid("spec.timeZone", '""', "timeZone must be nil or non-empty string")}),
        (
            {
                "jobTemplate": {
                    "spec": {
                        "selector": SELECTOR,
                        "manualSelector": True,
                        "template": template(restartPolicy="Never"),
                    }
                }
            },
            {
                invalid(
                    "spec.jobTemplate.spec.selector",
                    '{"matchLabels":{"app":"a"}}',
                    "`selector` will be auto-generated",
                ),
                unsupported("spec.jobTemplate.spec.manualSelector", "true", "nil", "false"),
            },
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_a_cron_job_must_be(api, cron_jobs, spec, causes):
    refused = await api.create(cron_jobs, cron_job(**spec))
    assert refused.causes == causes


async def test_a_time_zone_of_iana(api, cron_jobs):
    made = await api.create(cron_jobs, cron_job(timeZone="Europe/Berlin"))
    assert made["spec"]["timeZone"] == "Europe/Berlin"


async def test_the_name_of_a_cron_job_leaves_room_for_its_jobs(api, cron_jobs):
    name = "c" * 53
    refused = await api.create(cron_jobs, cron_job(name))
    assert refused.causes == {invalid("metadata.name", f'"{name}"', "must be no more than 52 characters")}


async def test_all_of_a_cron_job_can_be_changed_and_counts(api, cron_jobs):
    await api.create(cron_jobs, cron_job())
    patch = {
        "spec": {
            "schedule": "@hourly",
            "suspend": True,
            "jobTemplate": {"spec": {"template": {"metadata": {"labels": {"b": "c"}}}}},
        }
    }
    assert (await api.merge(f"{cron_jobs}/a", patch)).meta["generation"] == 2


async def test_the_status_of_a_cron_job_is_its_own(api, cron_jobs):
    await api.create(cron_jobs, cron_job())
    time = "2026-01-01T00:00:00Z"
    changed = await api.merge(
        f"{cron_jobs}/a/status", {"spec": {"suspend": True}, "status": {"lastScheduleTime": time}}
    )
    assert changed["status"] == {"lastScheduleTime": time}
    assert changed["spec"]["suspend"] is False
    assert changed.meta["generation"] == 1
