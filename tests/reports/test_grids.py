"""From statistics to tables as they are shown."""

from dataclasses import replace

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.grids import tables
from attnbench.reports.published import Published


def texts(table):
    return {line.variant: [cell.text for cell in line.cells] for line in table.lines}


def test_a_suite_with_an_axis_has_one_table_a_metric_with_the_axis_as_columns(made):
    rows = []
    for number, loss in ((100, 0.5), (20, 0.25)):
        rows += made.attempt("capacity", "linear", made.pairs(number), {"retrieval_loss": loss, "training_steps": 1200})
    first, second = tables(rows, made.capacity)
    assert (first.title, first.axis, first.columns) == ("Retrieval loss", "pairs", ("20", "100"))
    assert texts(first) == {"linear": ["0.250", "0.500"]}
    assert texts(second) == {"linear": ["1,200", "1,200"]}


def test_a_suite_with_one_axis_value_has_one_table_with_the_metrics_as_columns(made):
    rows = made.attempt("rewrite", "delta", Point(keys=20), {"retrieval_loss": 0.001, "training_steps": 900})
    (table,) = tables(rows, made.rewrite)
    assert table.title == "Every metric at keys 20"
    assert table.columns == ("retrieval loss", "training steps")
    assert texts(table) == {"delta": ["0.0010", "900"]}


def test_what_variants_have_several_of_stands_apart_from_what_they_have_one_of(made):
    rows = []
    for phase, metric in (("training", "training_peak_bytes"), ("prefill", "prefill_peak_bytes")):
        for variant in ("delta", "linear"):
            measured = {metric: 2048, "predicted_peak_bytes": 2048}
            rows += made.attempt("rewrite", variant, Point(keys=20, phase=phase), measured)
    one, several = tables(rows, made.rewrite)
    assert (one.title, several.title) == ("Metrics at keys 20", "More metrics at keys 20")
    assert (one.heads, several.heads) == (("variant",), ("variant", "phase"))
    assert len(several.lines) == 4
    # the headline, which nothing measured, has its column too
    assert [[cell.value for cell in line.cells] for line in one.lines] == 2 * [[None, 2048, 2048]]
    assert [[cell.value for cell in line.cells] for line in several.lines] == 4 * [[2048]]


def test_a_missing_cell_shows_its_status_and_never_a_blank_or_a_zero(made):
    rows = made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": 0.25})
    rows += made.attempt("capacity", "linear", made.pairs(60), {"retrieval_loss": 0.5})
    rows += made.attempt("capacity", "delta", made.pairs(20), status=Status.DIVERGED, reason="at step 7")
    rows += made.attempt("capacity", "gated", made.pairs(60), status=Status.OUT_OF_MEMORY, reason="9 GB")
    (table,) = tables(rows, made.capacity)
    assert texts(table) == {
        "delta": ["diverged", "not run"],
        "gated": ["not run", "out of memory"],
        "linear": ["0.250", "0.500"],
    }
    words = {line.variant: [cell.words for cell in line.cells] for line in table.lines}
    assert words["delta"] == [("diverged: at step 7",), ()]
    assert all(cell.text for line in table.lines for cell in line.cells)


def test_a_cell_says_how_many_of_its_seeds_gave_no_number(made):
    rows = []
    for seed in (0, 1):
        rows += made.attempt("capacity", "a", made.pairs(20), {"retrieval_loss": 0.25}, seed=seed)
        rows += made.attempt("capacity", "a", made.pairs(60), {"retrieval_loss": 0.25}, seed=seed)
    rows += made.attempt("capacity", "a", made.pairs(60), status=Status.DIVERGED, reason="x", seed=2)
    (table,) = tables(rows, made.capacity)
    whole, partly = table.lines[0].cells
    assert (whole.lost, partly.lost) == ("", "1 of 3 diverged")
    assert partly.words == ("diverged: x (1 of 3)",)
    assert (partly.value, partly.n) == (0.25, 2)


def test_constant_settings_are_said_once_and_varying_ones_are_columns(made):
    rows = []
    for number in (20, 60):
        for form in ("recurrent", "chunkwise"):
            rows += made.attempt("capacity", "linear", made.pairs(number), {"retrieval_loss": 0.25}, form=form)
    (table,) = tables(rows, made.capacity)
    assert table.heads == ("variant", "form")
    assert [line.labels for line in table.lines] == [("linear", "chunkwise"), ("linear", "recurrent")]
    assert "The same everywhere: batch 32, key width 64, threads 1" in table.notes


def test_a_setting_that_follows_the_axis_is_a_note_and_not_a_column(made):
    rows = []
    for tokens, batch in ((128, 8), (256, 4)):
        rows += made.attempt("memory", "a", Point(tokens=tokens, batch=batch), {"training_peak_bytes": 2048})
    (table,) = tables(rows, made.memory)
    assert table.heads == ("variant",)
    assert "Batch goes with tokens: 8 at 128, 4 at 256" in table.notes


def test_the_notes_say_what_the_numbers_are_and_cells_only_where_n_is_another(made):
    rows = []
    for seed in range(3):
        rows += made.attempt("capacity", "a", made.pairs(20), {"retrieval_loss": 0.1 * (seed + 1)}, seed=seed)
        rows += made.attempt("capacity", "a", made.pairs(60), {"retrieval_loss": 0.25}, seed=seed)
    (table,) = tables(rows, made.capacity)
    assert table.notes[0] == "Median of 3 seeds; below it min–max"
    assert table.notes[1].startswith("Lower is better. Smallest evaluation loss of the run")
    assert [cell.spread for cell in table.lines[0].cells] == ["0.100 – 0.300", "all equal"]
    (table,) = tables(rows[:-1], made.capacity)
    assert table.notes[0] == "Median of 3 seeds, unless the cell says n; below it min–max"


def test_a_model_above_the_bigram_is_marked_in_words(made):
    point = Point(context=64, data="web-bible")
    rows = made.attempt("language_modelling", "linear", point, {"word_perplexity": 310.0})
    rows += made.attempt("language_modelling", "delta", point, {"word_perplexity": 290.0})
    rows += made.attempt("language_modelling", "unigram", point, {"word_perplexity": 800.0}, form="count")
    rows += made.attempt("language_modelling", "bigram", point, {"word_perplexity": 300.0}, form="count")
    (table,) = tables(rows, made.language)
    assert [line.variant for line in table.lines] == ["delta", "linear", "bigram", "unigram"]
    assert [line.is_floor for line in table.lines] == [False, False, True, True]
    assert [line.remarks for line in table.lines] == [(), ("above the bigram floor: compares nothing",), (), ()]


def test_the_marks_go_by_the_floor_of_the_same_axis_value(made):
    rows = []
    for context, floor in ((64, 300.0), (128, 200.0)):
        rows += made.attempt("language_modelling", "linear", Point(context=context), {"word_perplexity": 250.0})
        rows += made.attempt(
            "language_modelling", "bigram", Point(context=context), {"word_perplexity": floor}, form="count"
        )
    table = tables(rows, made.language)[0]
    assert [cell.mark for cell in table.lines[0].cells] == ["", "above the bigram floor: compares nothing"]


def test_an_accuracy_below_the_highest_floor_is_marked_in_words(made):
    listops = replace(made.capacity, name="listops", axis="longest", metrics=("classification_accuracy",))
    rows = []
    for name, form, value in (
        ("delta", "chunkwise", 0.36),
        ("softmax", "sdpa", 0.45),
        ("majority", "count", 0.17),
        ("first_operator", "count", 0.37),
    ):
        rows += made.attempt("listops", name, Point(longest=64), {"classification_accuracy": value}, form=form)
    (table,) = tables(rows, listops)
    assert {line.variant: line.remarks for line in table.lines} == {
        "delta": ("below the first_operator floor: compares nothing",),
        "softmax": (),
        "first_operator": (),
        "majority": (),
    }


def test_a_reference_says_which_metrics_it_was_not_measured_on(made):
    point = Point(context=64)
    rows = made.attempt("language_modelling", "linear", point, {"word_perplexity": 200.0, "parameters": 1000})
    rows += made.attempt("language_modelling", "bigram", point, {"word_perplexity": 300.0}, form="count")
    (table,) = tables(rows, made.language)
    assert texts(table) == {"linear": ["200.0", "1,000"], "bigram": ["300.0", "not measured"]}
    assert not table.has_remarks


def test_variants_measured_in_phases_with_other_forms_keep_one_line_where_lengths_are_one(made):
    rows = []
    for phase, metric, form in (("training", "training", "chunkwise"), ("decoding", "decode", "recurrent")):
        numbers = {f"{metric}_tokens_per_second": 1000.0}
        rows += made.attempt("speed", "linear", Point(tokens=32, phase=phase), numbers, form=form)
        rows += made.attempt("speed", "softmax", Point(tokens=32, phase=phase), numbers, form="sdpa")
    (table,) = tables(rows, made.speed)
    assert table.heads == ("variant", "form")
    assert [line.labels for line in table.lines] == [("linear", "chunkwise, recurrent"), ("softmax", "sdpa")]
    assert texts(table) == {"linear": ["1.00k", "1.00k"], "softmax": ["1.00k", "1.00k"]}


def test_a_published_number_stands_beside_the_case_that_it_belongs_to(made):
    theirs = Published("capacity", "linear", Point(pairs=20, key_width=64), "retrieval_loss", 0.3, "A paper", "seed 1")
    rows = []
    for number in (20, 60):
        rows += made.attempt("capacity", "linear", made.pairs(number), {"retrieval_loss": 0.25})
        rows += made.attempt("capacity", "delta", made.pairs(number), {"retrieval_loss": 0.25})
    (table,) = tables(rows, made.capacity, [theirs])
    shown = {line.variant: [cell.published_text for cell in line.cells] for line in table.lines}
    assert shown == {"delta": ["", ""], "linear": ["0.300", ""]}
    assert table.notes[-1] == "Published: A paper, seed 1"


def test_a_published_number_of_another_setting_is_not_shown(made):
    theirs = Published("capacity", "linear", Point(pairs=20, key_width=16), "retrieval_loss", 0.3, "A paper", "seed 1")
    rows = made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": 0.25})
    (table,) = tables(rows, made.capacity, [theirs])
    assert table.lines[0].cells[0].published is None


def test_a_number_of_which_only_a_bound_was_published_says_so(made):
    point = Point(pairs=20, key_width=64)
    theirs = Published("capacity", "linear", point, "retrieval_loss", 260, "A paper", "seed 1", is_bound=True)
    rows = made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": 300.0})
    (table,) = tables(rows, made.capacity, [theirs])
    assert table.lines[0].cells[0].published_text == "above 260"


def test_a_suite_where_everything_failed_still_has_its_headline_table(made):
    rows = made.attempt("capacity", "a", made.pairs(20), status=Status.ERROR, reason="no")
    rows += made.attempt("capacity", "a", made.pairs(60), status=Status.TIMEOUT, reason="300 s")
    (table,) = tables(rows, made.capacity)
    assert texts(table) == {"a": ["error", "timeout"]}


def explained(made, number, loss):
    numbers = {"retrieval_loss": loss, "feature_width": 64, "feature_rank": 64, "denominator_at_start": 0.5}
    return made.attempt("capacity", "linear", made.pairs(number), numbers)


def test_what_explains_a_number_has_no_table_of_its_own_unless_it_is_asked_for(made):
    rows = explained(made, 20, 0.25) + explained(made, 100, 0.5)
    assert [table.title for table in tables(rows, made.capacity)] == ["Retrieval loss"]
    named = tables(rows, made.capacity, named=["feature_rank"])
    assert [table.title for table in named] == ["Retrieval loss", "Feature rank"]


def test_what_explains_a_number_stays_a_column_where_the_metrics_are_columns(made):
    (table,) = tables(explained(made, 20, 0.25), made.capacity)
    assert len(table.columns) == 4


def test_a_timing_whose_rounds_lie_far_apart_says_so(made):
    rows = []
    for tokens, width in ((256, 0.05), (1024, 0.2)):
        rounds = [100 * (1 + share * width) for share in (-1, -0.5, 0, 0.5, 1)]
        point = Point(tokens=tokens, phase="training")
        rows += made.attempt("speed", "delta", point, {"training_tokens_per_second": rounds})
    (table,) = tables(rows, made.speed)
    steady, unsteady = table.lines[0].cells
    assert steady.remark == ""
    # from 90 to 110 around 100
    assert unsteady.remark == "unsteady: spread 20% of the median"


def test_seeds_that_lie_far_apart_are_no_unsteady_timing(made):
    rows = []
    for seed, loss in enumerate((0.1, 0.5, 0.9)):
        rows += made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": loss}, seed=seed)
    (table,) = tables(rows, made.capacity)
    assert table.lines[0].cells[0].remark == ""
