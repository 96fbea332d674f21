"""The rows inside the page, read back."""

import json
import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.environment import Run
from attnbench.harness.rows import Artefact, Attempt, Identity, Measurement, Row, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Store
from attnbench.reports.embedded import embedded
from attnbench.reports.write import write_report


def read_back(page):
    """The rows that a page holds, as the database gives them."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    texts, tried, measured = data["texts"], data["attempts"], data["rows"]
    names = ("suite", "variant", "form", "scale", "device", "reason", "code_hash", "data_hash", "testbed")
    shared = [
        {
            **{name: texts[tried[name][place]] for name in names},
            "attempt_id": number,
            "run_id": texts[tried["run"][place]],
            "point": Point.from_json(texts[tried["point"][place]]),
            "status": Status(texts[tried["status"][place]]),
            "started_at": datetime.fromisoformat(texts[tried["started"][place]]),
            "facts": json.loads(texts[tried["facts"][place]]),
            **{name: tried[name][place] for name in ("seed", "threads", "seconds")},
        }
        for place, number in enumerate(tried["id"])
    ]
    rows = [
        Row(
            **shared[of],
            **{name: texts[measured[name][place]] for name in ("metric", "unit", "better")},
            value=measured["value"][place],
            samples=tuple(measured["samples"][place]),
        )
        for place, of in enumerate(measured["attempt"])
    ]
    without = set(range(len(shared))) - set(measured["attempt"])
    rows += [Row(**shared[of], metric="", unit="", better="", value=None, samples=()) for of in without]
    return sorted(rows, key=lambda row: (row.attempt_id, row.metric))


def test_the_numbers_in_the_page_equal_the_numbers_in_the_database(tmp_path):
    path = tmp_path / "results.db"
    with Store.open(path, writes=True) as store:
        store.begin_run(Run("run-1", "attnbench run", datetime(2026, 1, 2, tzinfo=UTC)))
        for seed in range(4):
            case = Case("capacity", "delta", "readout", Point(pairs=20, share=0.1), seed, "quick")
            # thirds and their like, which no short decimal is
            numbers = (
                Measurement("retrieval_loss", 1 / (seed + 3), tuple(1 / (3 + one) for one in range(seed))),
                Measurement("training_steps", 10**15 + seed),
            )
            attempt = Attempt(
                case,
                Identity("c0de", "da7a", "a bed"),
                Status.OK,
                seconds=1 / 7,
                started_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
                measurements=numbers,
                facts={"settings": "pairs=20"},
            )
            store.append("run-1", attempt, owner="me")
        case = Case("capacity", "linear", "readout", Point(pairs=20), 0, "quick")
        store.append("run-1", Attempt(case, Identity("c", ""), Status.ERROR, reason="</script>"), owner="me")
        store.end_run("run-1", "finished")
        stored = sorted(store.rows(), key=lambda row: (row.attempt_id, row.metric))
    page = write_report(path, tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(stored) == 9
    assert read_back(page) == stored
    # facts do not enter into the equality of rows
    assert [row.facts for row in read_back(page)] == [row.facts for row in stored]


@given(st.text(), st.text(), st.text())
def test_no_text_ends_or_opens_an_element_and_all_are_read_back(made, variant, reason, sample):
    rows = made.attempt("capacity", variant, made.pairs(20), status=Status.ERROR, reason=reason)
    number = rows[0].attempt_id
    text = embedded(rows, [], {number: variant}, {number: [Artefact("hypotheses", "text/plain", sample)]})
    assert not set("<>&") & set(text)
    data = json.loads(text)
    assert data["texts"][data["attempts"]["variant"][0]] == variant
    assert data["texts"][data["attempts"]["reason"][0]] == reason
    assert data["texts"][data["attempts"]["command"][0]] == variant
    assert data["artefacts"][str(number)] == [["hypotheses", "text/plain", sample, len(sample)]]


def test_a_long_sample_is_cut_and_says_how_long_it_was(made):
    rows = made.attempt("capacity", "delta", made.pairs(20), {"retrieval_loss": 0.25})
    number = rows[0].attempt_id
    data = json.loads(embedded(rows, [], {}, {number: [Artefact("a", "text/plain", "x" * 10_000)]}))
    ((_, _, text, length),) = data["artefacts"][str(number)]
    assert (len(text), length) == (4000, 10_000)
