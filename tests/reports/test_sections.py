"""The sections of suites are found by themselves."""

from attnbench.harness.spec import Point
from attnbench.reports.page import page
from attnbench.reports.section import SuiteSection
from attnbench.reports.sections import section_of, sections
from attnbench.suites import find_suites


def test_every_suite_has_a_section_and_what_one_gets_comes_before_what_one_pays():
    assert set(find_suites()) <= set(sections())
    listed = list(sections())
    assert listed[0] == "capacity"
    assert listed.index("unbounded_context") < listed.index("speed") < listed.index("memory")


def test_a_suite_that_nobody_wrote_a_section_for_stands_behind_what_one_gets_and_before_what_one_pays():
    place = section_of("of_mine").place
    assert section_of("unbounded_context").place < place < section_of("speed").place


def test_measures_have_keys_of_their_own_that_a_name_can_be_put_together_from():
    keys = [measure.key for section in sections().values() for measure in section.measures]
    assert len(keys) == len(set(keys))
    assert all(key.isalpha() for key in keys)


def test_a_section_says_what_its_passages_read(made, monkeypatch):
    seen = []

    def passages(given):
        seen.append((given.suite.name, len(given.rows), given.prefix))
        return ()

    monkeypatch.setattr("attnbench.reports.page.section_of", lambda name: SuiteSection(name, 0, passages=passages))
    page(made.attempt("mine", "linear", Point(pairs=20), {"retrieval_loss": 0.25}), ())
    assert seen == [("mine", 1, "mine-quick-cpu")]
