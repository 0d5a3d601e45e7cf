"""Leases: the responses that a lease holder may get."""

import pytest


def lease(**spec):
    return {"metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_duration_must_be_positive(api, leases, seconds):
    refused = await api.create(leases, lease(leaseDurationSeconds=seconds))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == {
        (
            "spec.leaseDurationSeconds",
            "FieldValueInvalid",
            f"Invalid value: {seconds}: must be greater than 0",
        )
    }
    assert refused.details["group"] == "coordination.k8s.io"


async def test_transitions_must_not_be_negative(api, leases):
    refused = await api.create(leases, lease(leaseTransitions=-1))
    assert refused.fields == {"spec.leaseTransitions"}


async def test_an_empty_holder_is_stored_as_such(api, leases):
    assert (await api.create(leases, lease(holderIdentity="")))["spec"] == {"holderIdentity": ""}


async def test_a_lease_without_spec_has_an_empty_one(api, leases):
    assert (await api.create(leases, {"metadata": {"name": "a"}}))["spec"] == {}


@pytest.mark.parametrize("time", ["2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.000000Z"])
async def test_times_have_six_fractional_digits(api, leases, time):
    assert (await api.create(leases, lease(renewTime=time)))["spec"]["renewTime"] == time


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ("2026-01-02T03:04:05Z", 'cannot parse "Z" as ".000000"'),
        ("2026-01-02T03:04:05.1Z", 'cannot parse ".1Z" as ".000000"'),
    ],
)
async def test_another_precision_is_a_bad_request(api, leases, time, problem):
    refused = await api.create(leases, lease(renewTime=time))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        f'Lease in version "v1" cannot be handled as a Lease: parsing time "{time}" as '
        f'"2006-01-02T15:04:05.000000Z07:00": {problem}'
    )


@pytest.mark.parametrize("time", ["yesterday", "2026-01-02T03:04:05.1234567Z", "2026-01-02 03:04:05.000000Z"])
async def test_what_is_no_time_is_a_bad_request(api, leases, time):
    assert (await api.create(leases, lease(acquireTime=time))).refusal == (400, "BadRequest")


async def test_a_duration_as_text_is_a_bad_request(api, leases):
    refused = await api.create(leases, lease(leaseDurationSeconds="5"))
    assert refused.refusal == (400, "BadRequest")
    assert refused.message.endswith(
        "json: cannot unmarshal string into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32"
    )


async def test_replace_without_a_version_is_invalid(api, leases):
    await api.create(leases, lease())
    refused = await api.replace(f"{leases}/a", lease(holderIdentity="me"))
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"metadata.resourceVersion"}


async def test_of_two_who_take_over_one_meets_a_conflict(api, leases):
    made = await api.create(leases, lease(holderIdentity=""))
    bodies = [{**made.body, "spec": {"holderIdentity": holder}} for holder in ("x", "y")]
    answers = [await api.replace(f"{leases}/a", body) for body in bodies]
    assert [answer.status for answer in answers] == [200, 409]
    assert (await api.get(f"{leases}/a"))["spec"]["holderIdentity"] == "x"


async def test_a_release_keeps_the_empty_holder(api, leases):
    await api.create(leases, lease(holderIdentity="me", leaseDurationSeconds=5))
    released = await api.merge(f"{leases}/a", {"spec": {"holderIdentity": ""}})
    assert released["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 5}


async def test_a_lease_has_no_generation(api, leases):
    assert "generation" not in (await api.create(leases, lease())).meta
