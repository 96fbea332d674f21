"""The plan: the cases that were asked for, in order, each once; and every mistake, told before anything is done."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness import plan as planning
from attnbench.harness.errors import (
    BadParameter,
    BadVariant,
    UnknownDevice,
    UnknownForm,
    UnknownScale,
    UnknownSuite,
    UnknownVariant,
    UserError,
)
from attnbench.harness.plan import Asked, Request, default_workers, parse_settings, plan, preferred_form, with_timeout
from attnbench.harness.spec import Grid, Point, Suite
from attnbench.suites import find_suites
from attnbench.variants.registry import find


def suite(name: str = "toy", *, grid: Grid | None = None, **more: Any) -> Suite:
    points = (Point(pairs=20, rate=1.0, data="bible"), Point(pairs=40, rate=1.0, data="bible"))
    scales = {"quick": grid or Grid(("softmax", "linear"), points, seeds=(0, 1))}
    settings = {"scales": scales, "forms": ("chunkwise", "recurrent"), **more}
    return Suite(name, name.title(), "what?", "none", "toys", "pairs", ("retrieval_loss",), **settings)


def asked(*suites: Suite, **request: Any) -> list[Asked]:
    return plan({one.name: one for one in suites or (suite(),)}, Request(**request), find)


def cases(*suites: Suite, **request: Any) -> list[str]:
    return [str(one.case) for one in asked(*suites, **request)]


def settings(**chosen: Any) -> Mapping[str, tuple[Any, ...]]:
    return {name: values if isinstance(values, tuple) else (values,) for name, values in chosen.items()}


# What is planned.


def test_without_wishes_the_grid_is_planned_seed_by_seed_with_the_variants_of_a_point_side_by_side() -> None:
    assert cases() == [
        f"toy/{variant}/{form}/data=bible,pairs={pairs},rate=1.0/seed{seed}"
        for seed in (0, 1)
        for pairs in (20, 40)
        for variant, form in (("softmax", "recurrent"), ("linear", "chunkwise"))
    ]


def test_wishes_take_the_place_of_what_the_grid_says() -> None:
    planned = cases(variants=("delta",), forms=("recurrent",), seeds=(7,), settings=settings(pairs=(5, 6), data="wiki"))
    assert planned == [f"toy/delta/recurrent/data=wiki,pairs={pairs},rate=1.0/seed7" for pairs in (5, 6)]


def test_what_is_asked_for_twice_is_planned_once() -> None:
    twice = {
        "suites": ("toy", "toy"),
        "variants": ("delta", "delta"),
        "forms": ("recurrent", "recurrent"),
        "seeds": (0, 0),
        "settings": settings(pairs=(20, 20)),
    }
    assert len(cases(**twice)) == 1


def test_a_variant_can_have_points_of_its_own() -> None:
    grid = Grid(("softmax", "linear"), (Point(pairs=20),), points_for={"linear": (Point(pairs=20), Point(pairs=40))})
    assert [(one.case.variant, one.case.point["pairs"]) for one in asked(suite(grid=grid))] == [
        ("softmax", 20),
        ("linear", 20),
        ("linear", 40),
    ]


def test_a_variant_can_have_seeds_of_its_own_and_wishes_take_their_place() -> None:
    one = suite(grid=Grid(("softmax", "linear"), (Point(pairs=20),), seeds=(0,), seeds_for={"linear": (0, 3)}))
    assert [(each.case.variant, each.case.seed) for each in asked(one)] == [
        ("softmax", 0),
        ("linear", 0),
        ("linear", 3),
    ]
    assert {each.case.seed for each in asked(one, seeds=(7,))} == {7}


def test_references_are_planned_once_a_point_with_seed_0_and_no_address() -> None:
    planned = asked(suite(references=("unigram",)), variants=("delta",))
    references = [(str(one.case), one.address) for one in planned if one.case.variant == "unigram"]
    assert references == [(f"toy/unigram/count/data=bible,pairs={pairs},rate=1.0/seed0", "") for pairs in (20, 40)]
    assert len(planned) == 4 + 2


def test_a_suite_of_references_only_needs_no_variant() -> None:
    grid = Grid((), (Point(pairs=20), Point(pairs=40)))
    planned = cases(suite(grid=grid, references=("unigram",)), settings=settings(pairs=7))
    assert planned == ["toy/unigram/count/pairs=7/seed0"]


def test_threads_device_and_scale_are_part_of_the_case() -> None:
    (one, *_) = asked(suite(threads=2))
    assert (one.case.threads, one.case.device, one.case.scale) == (2, "cpu", "quick")


def test_a_suite_that_is_not_named_is_left_out_where_it_lacks_the_scale() -> None:
    other = suite("other", scales={"standard": Grid(("softmax",), (Point(pairs=1),))})
    assert {one.case.suite for one in asked(suite(), other)} == {"toy"}


def test_a_file_is_found_by_its_address_and_named_by_its_variant(tmp_path: Path) -> None:
    path = drop_in(tmp_path, "mine")
    planned = asked(variants=(f"{path}:VARIANT", "delta"), seeds=(0,), settings=settings(pairs=20))
    assert [(one.case.variant, one.address) for one in planned] == [("mine", f"{path}:VARIANT"), ("delta", "delta")]


def test_the_form_is_the_first_of_the_suites_order_that_the_variant_has() -> None:
    point = Point(phase="decoding")
    assert preferred_form(suite(forms=("sdpa", "chunkwise")), point, find("softmax")) == "sdpa"
    assert preferred_form(suite(forms=("sdpa", "chunkwise")), point, find("linear")) == "chunkwise"
    assert preferred_form(suite(forms=("readout", "recurrent")), point, find("delta")) == "readout"
    # none of them: the case is planned, and skipped with that as its reason
    assert preferred_form(suite(forms=("triton",)), point, find("fwp1991")) == "triton"
    by_point = suite(forms_for=lambda at: ("step",) if at["phase"] == "decoding" else ("recurrent",))
    assert preferred_form(by_point, point, find("delta")) == "step"


def test_a_form_that_only_some_variants_have_is_planned_for_all() -> None:
    planned = cases(variants=("softmax", "linear"), forms=("sdpa",), seeds=(0,), settings=settings(pairs=20))
    assert [name.split("/")[1:3] for name in planned] == [["softmax", "sdpa"], ["linear", "sdpa"]]


def test_settings_are_read_from_text() -> None:
    assert parse_settings(["pairs=20,40", "rate=1e-3", "data=wiki-mini", "pairs=60"]) == {
        "pairs": (20, 40, 60),
        "rate": (0.001,),
        "data": ("wiki-mini",),
    }


def test_a_whole_number_for_a_fraction_is_the_same_point() -> None:
    (one,) = asked(variants=("delta",), seeds=(0,), settings=settings(rate=1, pairs=20))
    assert one.case.point == Point(pairs=20, rate=1.0, data="bible")


def test_only_keeps_the_points_of_the_grid_that_have_the_value_and_replaces_nothing() -> None:
    assert cases(variants=("delta",), seeds=(0,), only=settings(pairs=(40,))) == [
        "toy/delta/chunkwise/data=bible,pairs=40,rate=1.0/seed0"
    ]
    assert cases(only=settings(pairs=(20, 40), data="bible")) == cases()
    # a whole number for a fraction is the same value
    assert cases(only=settings(rate=1)) == cases()


def test_only_chooses_among_the_points_that_a_variant_has_of_its_own() -> None:
    grid = Grid(("softmax", "linear"), (Point(pairs=20),), points_for={"linear": (Point(pairs=20), Point(pairs=40))})
    planned = [(one.case.variant, one.case.point["pairs"]) for one in asked(suite(grid=grid), only=settings(pairs=40))]
    assert planned == [("linear", 40)]


def test_only_chooses_before_settings_take_the_place_of_the_grids() -> None:
    planned = cases(variants=("delta",), seeds=(0,), only=settings(pairs=40), settings=settings(pairs=7, rate=2.0))
    assert planned == ["toy/delta/chunkwise/data=bible,pairs=7,rate=2.0/seed0"]
    # what was chosen so is not a setting by hand
    assert {one.settings for one in asked(only=settings(pairs=40))} == {""}


def test_only_leaves_out_a_suite_that_lacks_the_setting_and_points_of_references_too() -> None:
    other = suite("other", scales={"quick": Grid(("softmax",), (Point(tokens=1),))})
    counted = suite(grid=Grid((), (Point(pairs=20), Point(pairs=40))), references=("unigram",))
    assert cases(counted, other, only=settings(pairs=40)) == ["toy/unigram/count/pairs=40/seed0"]


@given(chosen=st.sets(st.integers(1, 9), min_size=1), points=st.sets(st.integers(1, 9), min_size=1))
def test_only_keeps_what_is_both_in_the_grid_and_asked_for(chosen: set[int], points: set[int]) -> None:
    grid = Grid(("delta",), tuple(Point(pairs=number) for number in sorted(points)))
    wanted = tuple(sorted(chosen))
    if chosen <= points:
        found = asked(suite(grid=grid), only={"pairs": wanted})
        assert [one.case.point["pairs"] for one in found] == list(wanted)
    else:
        with pytest.raises(BadParameter, match="no point of the grids has pairs="):
            asked(suite(grid=grid), only={"pairs": wanted})


def test_a_setting_may_be_0_where_a_point_of_the_grid_has_a_0() -> None:
    grid = Grid(
        ("delta",),
        (Point(memory=32, dropout=0.0, pairs=20),),
        points_for={"xl": (Point(memory=0, dropout=0.1, pairs=20),)},
    )
    zeros = settings(memory=0, dropout=0)
    assert cases(suite(grid=grid), settings=zeros) == ["toy/delta/chunkwise/dropout=0.0,memory=0,pairs=20/seed0"]
    # a negative zero is no other point
    (one,) = asked(suite(grid=grid), settings=settings(dropout=-0.0))
    assert one.case.point == Point(memory=32, dropout=0.0, pairs=20)
    with pytest.raises(BadParameter, match=r"setting pairs is a number above 0, got 0\. Use 1\."):
        asked(suite(grid=grid), settings=settings(pairs=0))
    with pytest.raises(BadParameter, match=r"setting memory is a number above 0, got -1\. Use 1\."):
        asked(suite(grid=grid), settings=settings(memory=-1))


def test_mqar_takes_no_examples_where_its_grid_does() -> None:
    mqar = find_suites()["mqar"]
    assert plan({"mqar": mqar}, Request(scale="quick", settings=settings(examples=0)), find)
    with pytest.raises(BadParameter, match=r"setting examples is a number above 0, got 0\."):
        plan({"mqar": mqar}, Request(scale="paper", settings=settings(examples=0)), find)


def test_every_suite_can_be_planned_at_every_scale_that_it_offers() -> None:
    suites = find_suites()
    for one in suites.values():
        for scale in one.scales:
            assert plan(suites, Request(suites=(one.name,), scale=scale), find)


def test_a_gpu_has_one_worker_and_a_processor_one_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "usable_cores", lambda: 6)
    assert (default_workers("cpu"), default_workers("cuda"), default_workers("cuda:1")) == (6, 1, 1)


# What is refused.


@pytest.mark.parametrize(
    ("request_", "kind", "told"),
    [
        ({"suites": ("toi",)}, UnknownSuite, "no suite 'toi'. Known: toy. Did you mean 'toy'?"),
        ({"scale": "quik"}, UnknownScale, "no scale 'quik'. Known: paper, quick, smoke, standard. Did you mean 'quick'?"),
        ({"suites": ("toy",), "scale": "paper"}, UnknownScale, "suite 'toy' has no scale 'paper'. Known: quick."),
        ({"scale": "paper"}, UnknownScale, "suite 'toy' has no scale 'paper'. Known: quick."),
        ({"variants": ("dleta",)}, UnknownVariant, "Did you mean 'delta'?"),
        ({"device": "gpu"}, UnknownDevice, "no device 'gpu'. Known: cpu, and for a GPU cuda or cuda:N."),
        ({"device": "cuda:x"}, UnknownDevice, "no device 'cuda:x'. Known: cpu, and for a GPU cuda or cuda:N."),
        ({"device": "cpu:x"}, UnknownDevice, "no device 'cpu:x'. Known: cpu, and for a GPU cuda or cuda:N."),
        ({"seeds": (-1,)}, BadParameter, "a seed is a whole number from 0 to 9223372036854775807, got -1. Use 0."),
        ({"seeds": (2**63,)}, BadParameter, "from 0 to 9223372036854775807, got 9223372036854775808. Use 0."),
        ({"forms": ("recurent",)}, UnknownForm, "none of the variants asked for has a form 'recurent'. Known: "
         "chunkwise, fla-chunk, fla-recurrent, parallel, readout, recurrent, sdpa, sdpa-cudnn, sdpa-efficient, sdpa-flash, "
         "sdpa-math, step, triton, xformers. Did you mean 'recurrent'?"),
        ({"settings": settings(pears=3)}, BadParameter, "no suite asked for has a setting 'pears'. Known: data, pairs, rate. Did you mean 'pairs'?"),
        ({"settings": settings(pairs="x")}, BadParameter, "setting pairs is a whole number, such as 20; got 'x'."),
        ({"settings": settings(pairs=2.5)}, BadParameter, "setting pairs is a whole number, such as 20; got '2.5'."),
        ({"settings": settings(pairs=0)}, BadParameter, "setting pairs is a number above 0, got 0. Use 1."),
        ({"settings": settings(pairs=(20, -5))}, BadParameter, "setting pairs is a number above 0, got -5. Use 1."),
        ({"settings": settings(rate="fast")}, BadParameter, "setting rate is a number, such as 1.0; got 'fast'."),
        ({"settings": settings(rate=float("nan"))}, BadParameter, "setting rate is a number above 0, got nan. Use 1.0."),
        ({"settings": settings(rate=float("inf"))}, BadParameter, "setting rate is a number above 0, got inf. Use 1.0."),
        ({"only": settings(pears=3)}, BadParameter, "no suite asked for has a setting 'pears'. Known: data, pairs, rate. Did you mean 'pairs'?"),
        ({"only": settings(pairs=7)}, BadParameter, "no point of the grids has pairs=7, and --only keeps some of them. Known: 20, 40."),
        ({"only": settings(pairs=(20, 50))}, BadParameter, "no point of the grids has pairs=50, and --only keeps some of them. Known: 20, 40."),
        ({"only": settings(data="wiki")}, BadParameter, "no point of the grids has data=wiki, and --only keeps some of them. Known: bible."),
        ({"settings": settings(data=3)}, BadParameter, "setting data is a word, such as bible; got '3'."),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_was_needed_and_what_to_do(
    request_: dict[str, Any], kind: type[UserError], told: str
) -> None:
    with pytest.raises(kind) as problem:
        asked(**request_)
    assert told in str(problem.value)


def test_points_that_no_variant_has_at_once_are_told() -> None:
    grid = Grid(("softmax", "linear"), (Point(pairs=20, rate=1.0), Point(pairs=40, rate=2.0)))
    told = r"of the variants asked for, none has a point with pairs=20 and rate=2\.0\. Ask for less with --only\."
    with pytest.raises(BadParameter, match=told):
        asked(suite(grid=grid), only=settings(pairs=20, rate=2.0))


@pytest.mark.parametrize("name", ["dpfp-nu0", "dpfp-nu64", "performer-m0"])
def test_a_parameter_out_of_range_at_the_key_width_of_the_point_is_refused(name: str) -> None:
    with pytest.raises(BadParameter, match=r"needs (nu|m) .*got"):
        asked(suite(grid=Grid((name,), (Point(pairs=20, key_width=64),))))


def test_a_device_that_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        UnknownDevice, match=r"device 'cuda' is not here: torch sees no CUDA device\. Use --device cpu\."
    ):
        asked(device="cuda")


def test_a_gpu_that_is_not_among_those_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UnknownDevice, match=r"device 'cuda:2' is not here: CUDA devices 0 to 1\."):
        asked(device="cuda:2")
    assert {one.case.device for one in asked(device="cuda:1")} == {"cuda:1"}


@pytest.mark.parametrize("text", ["pairs", "pairs=", "=3"])
def test_a_setting_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(
        BadParameter, match=rf"a setting is NAME=VALUE\[,VALUE\.\.\.\], as in pairs=20,40; got '{text}'\."
    ):
        parse_settings([text])


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(BadParameter, match=rf"a timeout is a number of seconds above 0, got {seconds:g}\. Use 600\."):
        with_timeout(Grid((), ()), seconds)


def test_a_timeout_takes_the_place_of_the_grids() -> None:
    grid = Grid((), (), timeout_seconds=5)
    assert (with_timeout(grid, 7).timeout_seconds, with_timeout(grid, None).timeout_seconds) == (7, 5)


def drop_in(folder: Path, name: str, file: str = "mine.py") -> Path:
    path = folder / file
    path.write_text(
        "from attnbench.variants.contract import Form, Variant\n"
        "def recurrent(q, k, v, memory=None):\n"
        "    return v, {}\n"
        f"VARIANT = Variant('{name}', 'o = v', 'none', {{'recurrent': Form(recurrent)}}, lambda K, V, T: 0)\n",
        encoding="utf-8",
    )
    return path


def test_two_files_with_variants_of_one_name_are_refused(tmp_path: Path) -> None:
    one, other = drop_in(tmp_path, "mine"), drop_in(tmp_path, "mine", "other.py")
    with pytest.raises(
        BadVariant, match=rf"{one} and {other} are both called 'mine'\. Give one of them another name\."
    ):
        asked(variants=(str(one), str(other)))
    # one file under two addresses is one variant
    assert len(cases(variants=(str(one), f"{one}:VARIANT"), seeds=(0,), settings=settings(pairs=20))) == 1
