"""`attnbench report` and its options, on a database of two runs."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from attnbench.harness.environment import Run
from attnbench.harness.errors import BadParameter, UnknownSuite, UnknownVariant, UserError
from attnbench.harness.rows import Attempt, Identity, Measurement, Status
from attnbench.harness.spec import Case, Grid, Point, Suite
from attnbench.harness.store import Store
from attnbench.reports.choice import Choice
from attnbench.reports.write import Wishes, report

START = datetime(2026, 1, 2, tzinfo=UTC)
EVIL = "<b>a|b</b>"


def suite(name, axis, metric):
    grid = {"quick": Grid(variants=("linear",), points=(Point({axis: 20}),))}
    return Suite(name, name.title(), f"What of {name}?", "", "m", axis, (metric,), grid, ("chunkwise",))


@pytest.fixture
def database(tmp_path):
    """Two runs with the same cases: in the second all losses of delta are halved, those of linear differ by noise."""
    path = tmp_path / "results.db"
    with Store.open(path, writes=True) as store:
        for number, factor in ((1, 1.0), (2, 0.5)):
            run = f"2026010{number}-000000-abcde{number}"
            begun = START + timedelta(days=number)
            store.begin_run(Run(run, "attnbench run", begun, machine={"cpu": "a processor"}, commit=f"c0ffee{number}"))
            store.record_suite(suite("capacity", "pairs", "retrieval_loss"))
            store.record_suite(suite("rewrite", "keys", "retrieval_loss"))
            for seed in range(4):
                for name, axis in (("capacity", "pairs"), ("rewrite", "keys")):
                    delta = 0.4 * factor + 0.001 * seed
                    linear = 0.3 + (0.01 if (seed + number) % 2 else -0.01)
                    for variant, loss in (("delta", delta), ("linear", linear)):
                        case = Case(name, variant, "chunkwise", Point({axis: 20}), seed, "quick")
                        attempt = Attempt(
                            case,
                            Identity("c0de", "da7a"),
                            Status.OK,
                            started_at=begun + timedelta(seconds=seed),
                            measurements=(Measurement("retrieval_loss", loss),),
                        )
                        store.append(run, attempt, owner="me")
            store.end_run(run, "finished")
    return path


@pytest.fixture
def made_report(database, tmp_path, monkeypatch):
    """What is printed, and the text of the page."""
    monkeypatch.chdir(tmp_path)

    def made(**wishes):
        said = report(str(database), Wishes(**wishes), measured=False)
        page = tmp_path / "attnbench.html"
        return said, page.read_text(encoding="utf-8") if page.exists() else ""

    return made


def test_a_page_is_of_the_suites_and_variants_that_were_chosen_under_the_title_that_was_given(made_report):
    said, page = made_report(title="Mine & yours", choice=Choice(suites=("capacity",), variants=("delta",)))
    assert said == "report: attnbench.html"
    assert "<title>Mine &amp; yours</title>" in page
    assert 'id="suite-capacity"' in page
    assert 'id="suite-rewrite"' not in page
    assert "4 cases of 1 variants" in page


def test_names_that_nothing_stored_has_are_refused(made_report):
    with pytest.raises(UnknownSuite, match=r"nothing is stored of suite 'capcity'. Known: capacity, rewrite"):
        made_report(choice=Choice(suites=("capcity",)))
    with pytest.raises(UnknownVariant, match="Did you mean 'delta'"):
        made_report(choice=Choice(variants=("delt",)))


def test_two_runs_are_held_against_each_other_and_what_is_inside_the_noise_is_not_told_apart(made_report):
    _, page = made_report(choice=Choice(compared=("20260101", "20260102")))
    assert "Run B against run A" in page
    assert "A: 20260101-000000-abcde1, from 2026-01-03 00:00 UTC on a processor, at commit c0ffee1" in page
    # delta in two suites is better, linear in two suites is noise
    assert "4 numbers in common: 2 better in B and 0 worse, by more than their intervals; 2 not told apart" in page
    assert "Hollow: not told apart from 1" in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    # both sides of each number lie in the page
    assert len(data["attempts"]["id"]) == 32


def test_runs_to_compare_are_two_that_there_are(made_report):
    with pytest.raises(BadParameter, match=r"no run 'x' to compare. Known: 20260101-000000-abcde1"):
        made_report(choice=Choice(compared=("x", "20260102")))
    with pytest.raises(BadParameter, match="2 begin with '202601'"):
        made_report(choice=Choice(compared=("202601", "20260102")))
    with pytest.raises(BadParameter, match="--compare needs two runs, got 20260102-000000-abcde2 twice"):
        made_report(choice=Choice(compared=("20260102", "20260102-000000-abcde2")))


def test_a_site_has_a_page_a_run_one_of_the_newest_and_an_index_with_trends(made_report, tmp_path):
    said, _ = made_report(site=tmp_path / "site", title="All of mine")
    folder = tmp_path / "site"
    assert said == f"site: {folder / 'index.html'}"
    names = ["index.html", "newest.html", "run-20260101-000000-abcde1.html", "run-20260102-000000-abcde2.html"]
    assert sorted(path.name for path in folder.iterdir()) == names
    index, newest, first, _ = ((folder / name).read_text(encoding="utf-8") for name in names)
    for name in names[1:]:
        assert f'href="{name}"' in index
    assert '<a href="index.html">All runs</a>' in first
    # the superseded attempts of the first run are in its page and not in the newest
    assert '<data value="0.4015">' in first
    assert '<data value="0.4015">' not in newest
    # 0.2015 / 0.4015
    assert "Capacity: retrieval loss from run to run" in index
    assert ">0.502</data>" in index
    assert "16 ok" in index


def test_a_site_needs_a_folder_and_goes_with_no_other_form(made_report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a folder was needed for the site"):
        made_report(site=tmp_path / "file")
    with pytest.raises(UserError, match="Make it first: mkdir -p"):
        made_report(site=tmp_path / "no" / "site")
    with pytest.raises(BadParameter, match="--site writes a folder of pages"):
        made_report(site=tmp_path / "site", form="json")


def test_rows_are_printed_as_csv(made_report):
    text, page = made_report(form="csv", choice=Choice(suites=("capacity",)))
    lines = list(csv.DictReader(io.StringIO(text)))
    assert page == ""
    assert len(lines) == 8
    assert {line["variant"] for line in lines} == {"delta", "linear"}
    assert sorted(float(line["value"]) for line in lines if line["variant"] == "delta") == [0.2, 0.201, 0.202, 0.203]


def test_everything_is_printed_as_json(made_report):
    text, _ = made_report(form="json", title="T")
    found = json.loads(text)
    assert found["title"] == "T"
    assert len(found["rows"]) == 16
    assert {one["suite"] for one in found["suites"]} == {"capacity", "rewrite"}
    cell = found["suites"][0]["tables"][0]["lines"][0]["cells"][0]
    assert (cell["value"], cell["n"], cell["counted"]) == (0.2015, 4, "seeds")
    assert found["runs"][0]["commit"] == "c0ffee2"
    assert {one["verdict"] for one in found["verdicts"]}


def test_tables_are_written_as_markdown(made_report, tmp_path):
    said, _ = made_report(form="md", path=tmp_path / "report.md", title=EVIL)
    assert said == f"report: {tmp_path / 'report.md'}"
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# &lt;b&gt;a\\|b&lt;/b&gt;\n")
    assert "| delta | 0.202 (0.201 – 0.202) |" in text
    assert "## Rewrite: quick scale on cpu" in text


def test_an_unknown_form_and_forms_without_what_was_asked_are_refused(made_report, tmp_path):
    with pytest.raises(BadParameter, match=r"--format takes html, md, json, csv; got 'jsno'. .*Did you mean 'json'"):
        made_report(form="jsno")
    with pytest.raises(BadParameter, match="--compare and --figures are of the page"):
        made_report(form="json", figures=tmp_path / "figures")


def test_figures_are_written_beside_the_page_and_stand_alone(made_report, tmp_path):
    made_report(figures=tmp_path / "figures")
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "figures").iterdir()}
    assert "retrieval-loss-at-pairs-20.svg" in written
    for text in written.values():
        assert text.startswith('<?xml version="1.0" encoding="utf-8"?>\n<svg')
        assert 'xmlns="http://www.w3.org/2000/svg"' in text
        assert 'color="#1c1f22"' in text


def test_the_command_line_takes_them_all(database, tmp_path, commands):
    asked = ("report", "--db", str(database), "--suite", "capacity", "--format", "csv", "--no-measured")
    command = commands.start(*asked, folder=tmp_path)
    assert command.wait() == 0
    assert len(command.output().splitlines()) == 9
    code, said = commands.run("report", "--db", str(database), "--compare", "x", "y", folder=tmp_path)
    assert code == 2
    assert said.startswith("attnbench: BadParameter: no run 'x' to compare.")
