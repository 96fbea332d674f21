"""The page in a real browser: what a reader does with it, and that nothing in it comes from or goes anywhere else."""

import csv
import io
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from browsing import CHROMIUM, MISSING, browser, opened

from attnbench.harness.rows import Artefact, Status
from attnbench.harness.spec import Point
from attnbench.reports.page import page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

EVIL = '<script>window.harmed = 1</script><img src="x" onerror="window.harmed = 1">'
RUN = SimpleNamespace(
    id="run-1",
    command="attnbench run",
    started_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    ended_at=datetime(2026, 1, 2, 3, 14, tzinfo=UTC),
    state="finished",
    machine={"cpu": "AMD EPYC 7B13", "cores": 2, "memory_bytes": 8 * 2**30},
    device={},
    driver="",
    versions={"torch": "2.13.0"},
    commit="81137f0aa",
    is_dirty=False,
    environment={"OMP_NUM_THREADS": "1"},
)
# as the tests' rows have them
VARIANTS = ("delta", "dpfp-nu1", "linear", "softmax")


@pytest.fixture(scope="module")
def chromium():
    """The browser that all tests of this file share."""
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def rows(made):
    """Four variants in five suites; three seeds of each loss, five rounds of each time, and one failure."""
    rows = []
    for place, variant in enumerate(VARIANTS):
        for number in (20, 40, 60):
            for seed in range(3):
                loss = 0.0001 if number < 30 * (place + 1) else (0.2, 0.21, 0.22)[seed]
                rows += made.attempt("capacity", variant, made.pairs(number), {"retrieval_loss": loss}, seed=seed)
        for seed in range(3):
            perplexity = 100 + 20 * place + seed
            numbers = {"word_perplexity": perplexity, "state_floats": 64 * (place + 1)}
            rows += made.attempt("language_modelling", variant, Point(context=64), numbers, seed=seed)
        for tokens in (128, 256):
            rates = {"training_tokens_per_second": [(place + 1) * 1000.0 + one for one in range(5)]}
            rows += made.attempt("speed", variant, Point(tokens=tokens), rates)
            peaks = {"training_peak_bytes": tokens << (8 + place), "predicted_peak_bytes": tokens << (8 + place)}
            peaks |= {"decode_state_bytes": 1 << (9 + place)}
            rows += made.attempt("memory", variant, Point(tokens=tokens), peaks)
    rows += made.attempt("capacity", "gated", made.pairs(20), status=Status.DIVERGED, reason="not finite at step 7")
    return rows


@pytest.fixture(scope="module")
def file(made, rows, tmp_path_factory):
    """The page of these rows."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(rows, made.suites, [RUN]), encoding="utf-8")
    return path


def test_the_first_screen_has_machine_verdicts_and_trade_off(chromium, file):
    with opened(chromium, file) as reader:
        assert "AMD EPYC 7B13, 2 cores" in reader.page.locator("header").inner_text()
        tiles = reader.texts(".board .ruling")
        assert [one.split(" ", 1)[1] for one in tiles] == [
            "reproduced",
            "direction only",
            "contradicted",
            "not comparable",
            "not measured",
        ]
        for selector in (".board li:last-child", ".tradeoff .pair:not([hidden]) svg[role=img]"):
            box = reader.page.locator(selector).bounding_box()
            assert box["y"] + box["height"] < 900


def test_a_verdict_opens_its_claims_and_a_claim_its_evidence(chromium, file):
    with opened(chromium, file) as reader:
        reader.page.locator(".board a").last.click()
        state = reader.page.locator("section.state.not-measured")
        assert state.locator("h3").evaluate("element => element.getBoundingClientRect().top < innerHeight")
        state.locator("details.more > summary").click()
        claim = state.locator("details.claim").first
        claim.locator("summary").click()
        assert "published" in claim.locator("dl").inner_text()


def test_the_address_of_a_claim_unfolds_it(chromium, file):
    with opened(chromium, file, fragment="#claim-capacity-softmax-struggles-above-500") as reader:
        assert reader.page.locator("#claim-capacity-softmax-struggles-above-500 dl").is_visible()


def test_the_axes_of_the_trade_off_are_chosen(chromium, file):
    with opened(chromium, file) as reader:
        shown = ".tradeoff .pair:not([hidden]) figure"
        for quality in ("capacity", "perplexity"):
            for cost in ("state", "peak", "training", "floats"):
                reader.page.select_option("#quality", quality)
                reader.page.select_option("#cost", cost)
                assert reader.page.locator(shown).get_attribute("id") == f"tradeoff-{quality}-{cost}"
                assert reader.page.locator(f"{shown} svg[role=img]").is_visible()


def test_a_table_sorts_by_a_column_both_ways_and_words_come_last(chromium, file):
    with opened(chromium, file) as reader:
        box = "[aria-labelledby=suite-capacity] .tablebox >> nth=0"
        head = reader.page.locator(box).locator("thead tr:last-child th").nth(1)
        names = f"{box} >> tbody th"
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert reader.page.locator(names).all_inner_texts()[-1].strip() == "gated"
        column = list(reader.page.locator(f"{box} >> tbody tr td:nth-child(2) data").all())
        values = [float(one.get_attribute("value")) for one in column]
        assert values == sorted(values)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert reader.page.locator(names).all_inner_texts()[-1].strip() == "gated"
        first = reader.page.locator(box).locator("thead tr:last-child th").first
        first.locator("button").click()
        assert head.get_attribute("aria-sort") is None
        assert [one.strip() for one in reader.page.locator(names).all_inner_texts()] == [
            "delta",
            "dpfp-nu1",
            "gated",
            "linear",
            "softmax",
        ]


@pytest.fixture
def long_file(made, tmp_path):
    """A page with a table of 130 lines."""
    rows = []
    for number in range(130):
        rows += made.attempt("capacity", f"v-n{number}", made.pairs(20), {"retrieval_loss": 0.01 * (number + 1)})
    path = tmp_path / "long.html"
    path.write_text(page(rows, made.suites, [RUN]), encoding="utf-8")
    return path


def test_a_long_table_is_paged_filtered_and_printed_whole(chromium, long_file):
    with opened(chromium, long_file) as reader:
        box = reader.page.locator("[aria-labelledby=suite-capacity] .tablebox").first
        shown = "[aria-labelledby=suite-capacity] .tablebox >> nth=0 >> tbody tr:visible"
        assert reader.page.locator(shown).count() == 50
        assert "1–50 of 130 lines" in box.locator("[role=status]").inner_text()
        box.get_by_role("button", name="Next").click()
        box.get_by_role("button", name="Next").click()
        assert reader.page.locator(shown).count() == 30
        assert box.get_by_role("button", name="Next").is_disabled()
        reader.page.emulate_media(media="print")
        assert reader.page.locator(shown).count() == 130
        assert not box.locator(".tools").is_visible()
        reader.page.emulate_media(media="screen")
        box.locator("input[type=search]").fill("V-N12")
        # v-n12 and v-n120 to v-n129
        assert reader.page.locator(shown).count() == 11
        assert box.locator("[role=status]").inner_text() == "11 of 130 lines"
        reader.page.emulate_media(media="print")
        assert reader.page.locator(shown).count() == 11


def test_a_number_opens_its_provenance_and_the_keyboard_is_enough(chromium, file, rows):
    with opened(chromium, file) as reader:
        number = reader.page.locator("[aria-labelledby=suite-speed] td button.behind").first
        number.focus()
        reader.page.keyboard.press("Enter")
        panel = reader.page.locator("#behind")
        words = panel.inner_text()
        for said in (
            "training tokens per second",
            "delta, chunkwise",
            "tokens 128",
            "AMD EPYC 7B13",
            "torch 2.13.0",
            "81137f0aa",
            "da7ada7ada7a",
            "c0dec0dec0de",
            "run-1",
            "1000, 1001, 1002, 1003, 1004",
            "attnbench run speed --variant delta --form chunkwise --scale quick --seed 0 --only tokens=128 --rerun always",
        ):
            assert said in words, said
        saved = reader.download("#behind button:text('Rows as CSV')").decode()
        (line,) = csv.DictReader(io.StringIO(saved))
        (row,) = [row for row in rows if row.suite == "speed" and row.variant == "delta" and row.point["tokens"] == 128]
        assert (float(line["value"]), line["data_hash"], line["point.tokens"]) == (row.value, row.data_hash, "128")
        assert tuple(json.loads(line["samples"])) == row.samples
        assert (line["cpu"], line["commit"]) == ("AMD EPYC 7B13", "81137f0aa")
        reader.page.keyboard.press("Escape")
        assert not panel.is_visible()
        assert number.evaluate("element => element === document.activeElement")


def test_a_number_over_seeds_names_them_all_and_a_failure_its_reason(chromium, file):
    with opened(chromium, file) as reader:
        section = "[aria-labelledby=suite-capacity]"
        reader.page.locator(f"{section} .tablebox >> nth=0 >> tbody tr:first-child button.behind").first.click()
        words = reader.page.locator("#behind").inner_text()
        assert "0, 1, 2" in words
        assert "3 attempts" in words
        reader.page.locator("#behind form button").click()
        reader.page.locator(f"{section} td.failed button.behind").first.click()
        assert "diverged: not finite at step 7" in reader.page.locator("#behind").inner_text()


def test_figures_are_saved_as_svg_and_png(chromium, file):
    with opened(chromium, file) as reader:
        figure = "[aria-labelledby=suite-capacity] figure"
        svg = reader.download(f"{figure} button:text('SVG')").decode()
        assert svg.startswith("<svg")
        assert "retrieval loss" in svg
        assert 'fill="#ffffff"' in svg
        png = reader.download(f"{figure} button:text('PNG')")
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(png) > 10_000


def test_tables_are_saved_as_csv_and_latex(chromium, file):
    with opened(chromium, file) as reader:
        box = "[aria-labelledby=suite-capacity] .tablebox >> nth=0"
        lines = list(csv.DictReader(io.StringIO(reader.download(f"{box} >> button:text('CSV')").decode())))
        assert [line["variant"] for line in lines] == ["delta", "dpfp-nu1", "gated", "linear", "softmax"]
        delta, gated = lines[0], lines[2]
        # 0.2, 0.21, 0.22 at 60
        assert (float(delta["pairs 60"]), float(delta["pairs 60 low"]), float(delta["pairs 60 high"])) == (
            0.21,
            0.2,
            0.22,
        )
        assert delta["pairs 60 n"] == "3"
        assert gated["pairs 20"] == "diverged"
        tex = reader.download(f"{box} >> button:text('LaTeX')").decode()
        assert tex.count("\\\\\n") == 6
        assert "\\begin{tabular}{lrrr}" in tex
        assert "0.210 {\\scriptsize (0.200 -- 0.220)}" in tex


def test_all_rows_are_saved_as_csv(chromium, file, rows):
    with opened(chromium, file) as reader:
        lines = list(csv.DictReader(io.StringIO(reader.download("#all-rows").decode())))
        assert len(lines) == len(rows)
        assert sorted(float(line["value"]) for line in lines if line["value"]) == sorted(
            row.value for row in rows if row.value is not None
        )


def ground(reader):
    return reader.page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_and_light_follow_the_system_until_they_are_chosen(chromium, file):
    with opened(chromium, file) as reader:
        light = ground(reader)
        reader.page.emulate_media(color_scheme="dark")
        dark = ground(reader)
        assert dark != light
        button = reader.page.locator("button.theme")
        button.click()
        assert (button.inner_text(), ground(reader)) == ("Colours: light", light)
        button.click()
        assert (button.inner_text(), ground(reader)) == ("Colours: dark", dark)
        reader.page.emulate_media(media="print")
        assert ground(reader) == "rgb(255, 255, 255)"


def test_the_page_prints_to_pdf(chromium, file):
    with opened(chromium, file, dark=True) as reader:
        printed = reader.page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert len(printed) > 20_000


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_axe_finds_no_violation_and_nothing_is_wider_than_the_screen(chromium, file, width, dark):
    with opened(chromium, file, width=width, dark=dark) as reader:
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
        reader.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert reader.violations() == []
        reader.page.locator("td button.behind").first.click()
        assert reader.violations("#behind") == []


def test_an_empty_page_is_clean_too(chromium, made, tmp_path):
    path = tmp_path / "empty.html"
    path.write_text(page([], made.suites, [], database="my results.db"), encoding="utf-8")
    with opened(chromium, path) as reader:
        assert "attnbench run --db 'my results.db'" in reader.page.locator("main").inner_text()
        assert reader.violations() == []


def test_names_reasons_samples_and_titles_made_of_script_stay_text(chromium, made, tmp_path):
    rows = []
    for number in (20, 60):
        rows += made.attempt("capacity", EVIL, made.pairs(number), {"retrieval_loss": 0.25}, form=EVIL, run=EVIL)
    rows += made.attempt("capacity", EVIL, made.pairs(80), status=Status.ERROR, reason=EVIL, form=EVIL, run=EVIL)
    facts = SimpleNamespace(**{**vars(RUN), "id": EVIL, "command": EVIL, "machine": {EVIL: EVIL}, "commit": EVIL})
    texts = {rows[0].attempt_id: [Artefact(EVIL, "text/html", f"Ein Satz </script>{EVIL}<!-- ")]}
    path = tmp_path / "evil.html"
    path.write_text(page(rows, made.suites, [facts], title=EVIL, database=EVIL, texts=texts), encoding="utf-8")
    with opened(chromium, path) as reader:
        assert reader.page.title() == EVIL
        assert reader.page.locator("h1").inner_text() == EVIL
        for opener in reader.page.locator("[aria-labelledby=suite-capacity] td button.behind").all()[:3]:
            opener.click()
            assert EVIL in reader.page.locator("#behind").inner_text()
            reader.page.locator("#behind details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
            reader.page.keyboard.press("Escape")
        opener = reader.page.locator("[aria-labelledby=suite-capacity] td button.behind").first
        opener.click()
        assert f"Ein Satz </script>{EVIL}<!-- " in reader.page.locator("#behind pre").first.text_content()
        assert reader.page.locator("img").count() == 0
        assert reader.page.locator("script").count() == 2
        assert reader.page.evaluate("window.harmed") is None


def test_the_policy_of_the_page_refuses_scripts_that_were_brought_in(chromium, file):
    with opened(chromium, file) as reader:
        reader.page.evaluate(
            "() => { const one = document.createElement('script'); one.textContent = 'window.harmed = 1';"
            " document.body.append(one); }"
        )
        assert reader.page.evaluate("window.harmed") is None
        assert any("Content Security Policy" in words for words in reader.said)
        reader.said.clear()
