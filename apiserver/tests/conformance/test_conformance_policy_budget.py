"""PodDisruptionBudgets."""

import pytest
from conformance_workloads import NOT_NEGATIVE, PERCENT, QUALIFIED, invalid, required, unsupported

COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def budget(**spec):
    return {"metadata": {"name": "a"}, "spec": spec}


@pytest.fixture
def budgets(ns):
    return f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"


async def test_a_minimal_budget(api, budgets):
    made = await api.create(budgets, {"metadata": {"name": "a"}})
    assert made["spec"] == {}
    assert made["status"] == dict.fromkeys(COUNTS, 0)
    assert made.meta["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"minAvailable": -1}, {invalid("spec.minAvailable", "-1", NOT_NEGATIVE)}),
        (
            {"maxUnavailable": "101%"},
            {invalid("spec.maxUnavailable", '"101%"', "must not be greater than 100%")},
        ),
        ({"maxUnavailable": "x"}, {invalid("spec.maxUnavailable", '"x"', PERCENT)}),
        (
            {"selector": {"matchLabels": {"a b": "c"}}},
            {invalid("spec.selector.matchLabels", '"a b"', QUALIFIED)},
        ),
        (
            {"unhealthyPodEvictionPolicy": "x"},
            {unsupported("spec.unhealthyPodEvictionPolicy", '"x"', "AlwaysAllow", "IfHealthyBudget")},
        ),
        (
            {"minAvailable": 1, "maxUnavailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
            {
                invalid(
                    "spec",
                    '{"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":"50%","UnhealthyPodEvictionPolicy":null}',
                    "minAvailable and maxUnavailable cannot be both set",
                )
            },
        ),
    ],
)
async def test_an_unsound_budget(api, budgets, spec, causes):
    refused = await api.create(budgets, budget(**spec))
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


async def test_changes_of_a_budget_are_counted(api, budgets):
    await api.create(budgets, budget(minAvailable=1))
    assert (await api.merge(f"{budgets}/a", {"spec": {"minAvailable": "50%"}})).meta["generation"] == 2
    status = {"status": dict.fromkeys(COUNTS, 1)}
    written = await api.merge(f"{budgets}/a/status", status)
    assert (written["status"], written.meta["generation"]) == (status["status"], 2)


async def test_counts_of_a_budget_are_not_negative(api, budgets):
    await api.create(budgets, budget())
    refused = await api.merge(f"{budgets}/a/status", {"status": dict.fromkeys(COUNTS, -1)})
    assert refused.causes == {invalid(f"status.{field}", "-1", NOT_NEGATIVE) for field in COUNTS}


async def test_conditions_of_a_budget_are_whole(api, budgets):
    await api.create(budgets, budget())
    given = {"conditions": [{"type": "a b", "status": "x", "observedGeneration": -1}]}
    refused = await api.merge(f"{budgets}/a/status", {"status": {**dict.fromkeys(COUNTS, 1), **given}})
    at = "status.conditions[0]"
    assert refused.causes == {
        invalid(f"{at}.type", '"a b"', QUALIFIED),
        unsupported(f"{at}.status", '"x"', "False", "True", "Unknown"),
        invalid(f"{at}.observedGeneration", "-1", "must be greater than or equal to zero"),
        required(f"{at}.lastTransitionTime"),
        required(f"{at}.reason"),
    }
