"""Settings of language models: the published ones, and what does not go together."""

import pytest

from attnbench.harness.errors import BadParameter
from attnbench.harness.spec import Setting
from attnbench.suites import language_modelling, unbounded_context
from attnbench.suites.tasks.language.points import check, cutoffs_of, medium, point, shape_of, small

SUITES = (language_modelling.SUITE, unbounded_context.SUITE)


def test_every_point_of_every_grid_holds() -> None:
    for suite in SUITES:
        for grid in suite.scales.values():
            for one in {*grid.points, *(one for points in grid.points_for.values() for one in points)}:
                suite.check(one)
                shape_of(one)


def test_a_published_step_reads_as_many_tokens_as_published() -> None:
    # 96 x 256 and 56 x 384
    assert small()["batch"] * small()["context"] == 24_576  # type: ignore[operator]
    assert medium()["batch"] * medium()["context"] == 21_504  # type: ignore[operator]


def test_all_variants_that_one_table_compares_stand_at_one_point() -> None:
    grid = language_modelling.SUITE.scales["paper"]
    table_2 = ("softmax", "linear", "delta")
    assert len({grid.points_of(variant)[:2] for variant in table_2}) == 1
    assert set(grid.points_of("performer-m16")) == set(grid.points_of("softmax"))
    assert {one["positions"] for one in grid.points_of("delta+attnnorm")} == {"sinusoidal", "none"}


def test_transformer_xl_is_scored_with_four_states_and_trained_once() -> None:
    suite = unbounded_context.SUITE
    points = suite.scales["paper"].points_of("xl")
    assert [(one["evaluation_memory"], one["evaluation_context"]) for one in points] == [
        (15, 1),
        (64, 64),
        (128, 128),
        (384, 384),
    ]
    as_trained = {tuple((name, value) for name, value in one.items() if name not in suite.evaluation) for one in points}
    assert len(as_trained) == 1


def test_cutoffs_are_read_as_numbers() -> None:
    assert cutoffs_of(small()) == (20_000, 40_000, 200_000)
    assert cutoffs_of(point()) == ()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"heads": 8}, "width is heads times key_width, here 8 x 32 = 256, got 128."),
        ({"vocabulary": 10}, "a vocabulary has room for every byte and character, so at least 400; got 10."),
        ({"norm": "past"}, "no norm 'past'. Known: post, pre. Did you mean 'post'?"),
        (
            {"tokeniser": "words", "cutoffs": "many"},
            "cutoffs are numbers of words with strokes between, as in 20000/40000, or 'none'; got 'many'.",
        ),
        (
            {"tokeniser": "words", "cutoffs": "500/200"},
            "cutoffs rise from above 0 to below the vocabulary of 1000; got '500/200'.",
        ),
        (
            {"tokeniser": "words", "cutoffs": "1000"},
            "cutoffs rise from above 0 to below the vocabulary of 1000; got '1000'.",
        ),
        (
            {"cutoffs": "500"},
            "cutoffs need words in the order of their frequency, so tokeniser=words; use cutoffs=none.",
        ),
        (
            {"accumulation": 3},
            "a batch is cut into parts of one size, so accumulation divides batch, here 8; got 3.",
        ),
        ({"dropout": 1.0}, "dropout is a share from 0 to below 1, got 1."),
        ({"beta2": 1.0}, "beta2 is a number between 0 and 1, got 1."),
        ({"warm_up": 801}, "warm_up is at most the 800 steps, got 801."),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changed: dict[str, Setting], says: str) -> None:
    with pytest.raises(BadParameter) as refused:
        check(point(**changed))
    assert str(refused.value) == says


def test_a_stride_beyond_the_context_is_refused() -> None:
    with pytest.raises(BadParameter, match="stride is at most the context of 128 tokens"):
        language_modelling.SUITE.check(point(stride=129))


def test_a_memory_is_carried_along_streams_only() -> None:
    with pytest.raises(BadParameter, match="so order is streams; got windows"):
        unbounded_context.SUITE.check(point(order="windows"))
