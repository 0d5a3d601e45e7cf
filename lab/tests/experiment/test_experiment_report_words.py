"""Numbers and verdicts as people read them."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from recorded import RUN

from kubeshard_lab.experiment.recording import Level
from kubeshard_lab.experiment.report.words import clock, digits, percent, seconds, size, verdict, what

FINISHED = replace(RUN, finished=True)
KEPT, MISSED = Level("queue p99", 1.0, 0.5, True), Level("reconcile p99", 5.0, 7.25, False)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (seconds, 0.0985, "98.5 ms"),
        (seconds, 0.00041, "0.41 ms"),
        (seconds, 1.25, "1.25 s"),
        (seconds, 0.9999, "1 s"),
        (seconds, 900.0, "15 min"),
        (seconds, 150.0, "2 min 30 s"),
        (seconds, 179.9, "3 min"),
        (seconds, math.inf, "never"),
        (seconds, math.nan, "-"),
        (size, 100.0, "100 B"),
        (size, 1536.0, "1.5 KiB"),
        (size, 75.25 * (1 << 20), "75.2 MiB"),
        (digits, 155.43, "155"),
        (digits, 0.0, "0"),
        (digits, 0.02149, "0.0215"),
        (percent, 0.38, "38 %"),
        (percent, 0.0052, "0.5 %"),
        (percent, 0.99999, "99.9 %"),
        (percent, 1.0, "100 %"),
        (percent, 1.36, "136 %"),
        (percent, math.nan, "-"),
        (clock, 307.0, "5:07"),
    ],
)
def test_a_number_has_its_unit_and_about_three_digits(function: object, value: float, text: str) -> None:
    assert callable(function)
    assert function(value) == text


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"levels": [KEPT]}, "good", "Valid. The service level was kept."),
        ({"levels": [KEPT, KEPT]}, "good", "Valid. All 2 service levels were kept."),
        (
            {"levels": [KEPT, MISSED]},
            "bad",
            "Valid, but missed: reconcile p99 (7.25 s, limit 5 s). 1 level was kept.",
        ),
        ({"levels": [Level("queue p99", 1.0, None, False)]}, "bad", "queue p99 (nothing was measured)"),
        ({}, "unsure", "No service level was judged."),
        ({"invalid": ["The load was late."], "levels": [KEPT]}, "unsure", "Invalid: the figures say nothing"),
        ({"invalid": ["The load was late."]}, "unsure", "The load was late."),
        ({"finished": False, "levels": [KEPT]}, "unsure", "The run was cut off"),
    ],
)
def test_the_verdict_says_whether_the_run_counts_and_which_levels_it_missed(
    change: dict[str, object], kind: str, words: str
) -> None:
    found, sentence = verdict(replace(FINISHED, **change))
    assert found == kind
    assert words in sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "3 instances of kubeshard's operator with 15 workers each and an external sharder"),
        (
            {"setup": "singleton", "instances": 1, "workers": 50},
            "kubeshard's operator as a singleton with 50 workers",
        ),
        (
            {"setup": "in-manager", "program": "go"},
            "the Go project's operator with 15 workers each, one of which",
        ),
        (
            {"program": "go+kubeshard"},
            "kubeshard's operator with 15 workers each and the Go project's external sharder",
        ),
    ],
)
def test_one_sentence_says_what_was_run(change: dict[str, object], words: str) -> None:
    sentence = what(replace(FINISHED, **change))
    assert words in sentence
    assert sentence.startswith("Scenario basic at 0.1 of its rates for 2 min: ")
