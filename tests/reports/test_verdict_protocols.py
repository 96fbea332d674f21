"""Which rows answer a claim: those of its protocol and its settings, the newest of each seed, and what others may say."""

from dataclasses import replace
from datetime import timedelta

from claimed import LOSS, PROTOCOL, claim, order, ruling

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.published.claims import Threshold
from attnbench.reports.published.protocol import Protocol
from attnbench.reports.verdicts import Ruling, verdict

# Protocols.

NEVER = claim(Threshold(("linear",), (), (20, 40), LOSS, 0.001))


def test_rows_of_another_scale_or_protocol_support_a_direction_and_say_so(measured):
    found = verdict(NEVER, measured("linear", {20: 0.1, 40: 0.2}, scale="quick", protocol="text"))
    assert found.ruling is Ruling.DIRECTION_ONLY
    assert found.why == (
        "another protocol (quick scale, protocol=text): the direction is the same, 2 of 2 on the claimed side of 0.001"
    )


def test_rows_of_another_protocol_contradict_nothing(measured):
    found = verdict(NEVER, measured("linear", {20: 0.0001, 40: 0.0001}, protocol="text"))
    assert found.ruling is Ruling.NOT_COMPARABLE
    assert found.why.startswith("another protocol (paper scale, protocol=text): not so, 0 of 2")


def test_rows_of_two_protocols_are_never_mixed(measured):
    exact = measured("linear", {20: 0.0001})
    found = verdict(NEVER, exact + measured("linear", {20: 0.1, 40: 0.2}, scale="standard", seed=7))
    assert found.ruling is Ruling.CONTRADICTED
    assert found.measured == "≤ 0.001 at 20"


def test_of_other_protocols_the_fullest_speaks_and_one_that_says_otherwise_is_named(measured):
    rows = measured("linear", {20: 0.1, 40: 0.2}, scale="standard") + measured("linear", {20: 0.0001}, scale="quick")
    found = verdict(NEVER, rows)
    assert found.ruling is Ruling.DIRECTION_ONLY
    assert found.why.endswith("; otherwise under quick scale")


def test_smoke_rows_and_keys_of_another_width_answer_nothing(measured):
    rows = measured("linear", {20: 0.1, 40: 0.2}, scale="smoke") + measured("linear", {20: 0.1, 40: 0.2}, key_width=16)
    assert ruling(NEVER, rows) is Ruling.NOT_MEASURED


def test_a_claim_of_no_particular_scale_takes_any(measured):
    anywhere = replace(NEVER, protocol=Protocol("any", "any", "", Point(key_width=64), Point()))
    assert ruling(anywhere, measured("linear", {20: 0.1, 40: 0.2}, scale="quick")) is Ruling.REPRODUCED


def test_a_protocol_may_be_read_from_some_scales_alone(measured):
    some = replace(NEVER, protocol=replace(PROTOCOL, scales=("standard", "paper")))
    rows = {20: 0.1, 40: 0.2}
    assert ruling(some, measured("linear", rows, scale="quick")) is Ruling.NOT_MEASURED
    assert ruling(some, measured("linear", rows, scale="standard")) is Ruling.DIRECTION_ONLY
    assert ruling(some, measured("linear", rows)) is Ruling.REPRODUCED


def test_a_variant_may_have_been_published_with_settings_of_its_own(measured):
    own = replace(PROTOCOL, settings=Point(protocol="code", batch=32), settings_for={"b": Point(batch=64)})
    test = replace(order(["a"], ["b"]), protocol=own)
    rows = measured("a", {20: 0.1}) + measured("b", {20: 0.2}, batch=64)
    assert ruling(test, rows) is Ruling.REPRODUCED
    assert ruling(test, measured("a", {20: 0.1}) + measured("b", {20: 0.2})) is Ruling.NOT_MEASURED


def test_another_protocol_is_told_by_some_settings_and_the_others_are_counted(measured):
    settings = Point(protocol="code", batch=64, patience=3, target=0.5)
    some = replace(NEVER, protocol=replace(PROTOCOL, settings=settings, tells=("batch",)))
    found = verdict(some, measured("linear", {20: 0.1, 40: 0.2}))
    assert found.why.startswith("another protocol (paper scale, batch=32 and 2 more settings): ")


def test_settings_of_the_claim_choose_its_rows(measured):
    batch = replace(NEVER, point=Point(batch=128))
    assert ruling(batch, measured("linear", {20: 0.1, 40: 0.2})) is Ruling.NOT_MEASURED
    assert ruling(batch, measured("linear", {20: 0.1, 40: 0.2}, batch=128)) is Ruling.REPRODUCED


def test_what_was_asked_and_gave_no_number_is_not_measured_with_its_ending(measured):
    found = verdict(NEVER, measured("linear", {20: 0.1}, status=Status.TIMEOUT, reason="600 s"))
    assert (found.ruling, found.why, found.measured) == (Ruling.NOT_MEASURED, "timeout: 600 s", "")


# Seeds.


def test_several_seeds_count_by_their_median_and_it_is_said_how_many_are_alike(measured):
    at_20 = claim(Threshold(("linear",), (20,), (), LOSS, 0.001))
    found = verdict(at_20, measured("linear", {20: [0.0005, 0.4, 0.0007]}))
    assert found.ruling is Ruling.REPRODUCED
    assert (found.seeds, found.alike) == (3, (2, 3))
    assert verdict(at_20, measured("linear", {20: [0.0005, 0.0006, 0.0007]})).alike == (3, 3)


def test_below_three_seeds_nothing_is_said_of_their_likeness(measured):
    found = verdict(NEVER, measured("linear", {20: [0.1, 0.2], 40: 0.2}))
    assert (found.seeds, found.alike) == (1, None)


def test_a_newer_attempt_replaces_an_older_one_of_its_seed(measured):
    old, new = measured("linear", {20: 0.0001, 40: 0.1}), measured("linear", {20: 0.1})
    new = [replace(row, started_at=row.started_at + timedelta(1)) for row in new]
    assert ruling(NEVER, new + old) is Ruling.REPRODUCED


def test_shipped_rows_are_counted_and_give_way_to_rows_of_the_database(measured):
    shipped = [
        replace(row, attempt_id=-row.attempt_id, started_at=row.started_at + timedelta(1))
        for row in measured("linear", {20: 0.0001, 40: 0.1})
    ]
    own = measured("linear", {20: 0.1})
    found = verdict(NEVER, shipped + own)
    assert found.ruling is Ruling.REPRODUCED
    assert found.shipped == (1, 2)
