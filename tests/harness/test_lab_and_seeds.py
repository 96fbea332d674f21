"""What a suite is handed: the same randomness for every variant, and a place where numbers are kept once."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attnbench.harness import lab as labs
from attnbench.harness.checkpoints import Checkpoint
from attnbench.harness.errors import UnknownMetric
from attnbench.harness.lab import Lab
from attnbench.harness.rows import Artefact, Identity, Measurement, Series
from attnbench.harness.seeds import generator, seed
from attnbench.harness.spec import Case, Point
from attnbench.variants.registry import find


def lab(variant: str = "delta", *, form: str = "recurrent", number: int = 0, pairs: int = 20) -> Lab:
    return Lab(Case("capacity", variant, form, Point(pairs=pairs), number, "smoke"), find(variant))


def first_numbers(made: torch.Generator) -> list[float]:
    return torch.rand(4, generator=made).tolist()


def test_a_seed_is_determined_by_its_parts_their_kinds_and_their_order() -> None:
    assert seed("data", 1) == seed("data", 1)
    assert len({seed("data", 1), seed("data", "1"), seed("data1"), seed(1, "data"), seed("data", 2), seed()}) == 6


def test_a_seed_is_the_same_on_every_machine() -> None:
    # python3 -c 'import hashlib; print(int(hashlib.sha256(b"[\"data\", 1]").hexdigest()[:16], 16) >> 1)'
    assert seed("data", 1) == 8073195653922538758


def test_a_seed_is_what_a_generator_takes() -> None:
    numbers = [seed("part", number) for number in range(1000)]
    assert all(0 <= number < 2**63 for number in numbers)
    assert len(set(numbers)) == 1000


def test_a_generator_owes_nothing_to_what_was_drawn_before() -> None:
    before = first_numbers(generator("data"))
    torch.rand(100)
    first_numbers(generator("other"))
    assert first_numbers(generator("data")) == before


def test_every_variant_and_form_of_a_point_sees_the_same_data() -> None:
    expected = first_numbers(lab("delta").generator("data", 1))
    assert first_numbers(lab("linear", form="chunkwise").generator("data", 1)) == expected
    assert first_numbers(lab("delta").generator("data", 2)) != expected
    assert first_numbers(lab("delta", number=1).generator("data", 1)) != expected
    assert first_numbers(lab("delta", pairs=21).generator("data", 1)) != expected


def test_nothing_random_hangs_on_settings_that_are_only_for_evaluation() -> None:
    def bench(evaluation: tuple[str, ...], **settings: int) -> Lab:
        case = Case("capacity", "performer-m8", "recurrent", Point(pairs=20, **settings), 0, "smoke")
        return Lab(case, find("performer-m8"), evaluation=evaluation)

    first, other = bench(("stride",), stride=1), bench(("stride",), stride=2)
    assert first.training_point == Point(pairs=20)
    assert first.seed("data") == other.seed("data") == bench(()).seed("data") == lab().seed("data")
    assert first_numbers(first.generator("data")) == first_numbers(other.generator("data"))
    assert torch.equal(first.draws(2, 4, "training", 1), other.draws(2, 4, "training", 1))  # type: ignore[arg-type]
    # without such settings a part's seed is what it has always been
    assert bench((), stride=1).seed("data") == seed("capacity", '{"pairs":20,"stride":1}', 0, "data")


def test_a_variant_without_randomness_has_no_draws() -> None:
    assert lab("delta").draws(1, 16, "training", 1) is None


def test_draws_are_new_for_each_step_unless_the_variant_never_redraws() -> None:
    first = lab("performer-m8").draws(2, 4, "training", 1)
    assert first is not None
    assert torch.equal(first, lab("performer-m8").draws(2, 4, "training", 1))  # type: ignore[arg-type]
    assert not torch.equal(first, lab("performer-m8").draws(2, 4, "training", 2))  # type: ignore[arg-type]
    fixed = lab("performer-m8+fixeddraws")
    assert torch.equal(fixed.draws(2, 4, "training", 1), fixed.draws(2, 4, "evaluation"))  # type: ignore[arg-type]


def test_a_reference_is_no_variant() -> None:
    unigram = Lab(Case("language_modelling", "unigram", "count", Point(), 0, "smoke"), None)
    with pytest.raises(AssertionError, match="unigram is a reference, not a variant"):
        unigram.mechanism()


def test_numbers_curves_and_texts_are_kept_as_plain_values() -> None:
    bench = lab()
    bench.record("retrieval_loss", torch.tensor(0.25), (torch.tensor(0.25), 1))  # type: ignore[arg-type]
    bench.curve("loss", "step", [1, 2], [0.5, 0.25])
    bench.artefact("note", "text/plain", "eins")
    assert bench.measurements == [Measurement("retrieval_loss", 0.25, (0.25, 1.0))]
    assert bench.curves == [Series("loss", "step", (1.0, 2.0), (0.5, 0.25))]
    assert bench.artefacts == [Artefact("note", "text/plain", "eins")]
    assert type(bench.measurements[0].value) is float


def test_a_metric_that_is_not_defined_is_refused_with_the_nearest_that_is() -> None:
    with pytest.raises(UnknownMetric, match=r"no metric 'retrieval_los'\. Known: .* Did you mean 'retrieval_loss'\?"):
        lab().record("retrieval_los", 0.5)


def test_a_number_a_curve_and_a_text_have_one_value_each() -> None:
    bench = lab()
    bench.record("retrieval_loss", 0.5)
    bench.curve("loss", "step", [1], [0.5])
    bench.artefact("note", "text/plain", "eins")
    with pytest.raises(ValueError, match="a case has one metric called 'retrieval_loss', and it was recorded before"):
        bench.record("retrieval_loss", 0.25)
    with pytest.raises(ValueError, match="a case has one curve called 'loss', and it was recorded before"):
        bench.curve("loss", "step", [1], [0.25])
    with pytest.raises(ValueError, match="a case has one artefact called 'note', and it was recorded before"):
        bench.artefact("note", "text/plain", "zwei")


def test_progress_is_told_at_most_four_times_a_second_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(labs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    told: list[tuple[float, str]] = []
    bench = Lab(lab().case, None, lambda fraction, note: told.append((fraction, note)))
    for moment, fraction in ((100.0, -1.0), (100.1, 0.2), (100.2, 0.3), (100.3, 0.4), (101.0, 2.0)):
        now[0] = moment
        bench.progress(fraction, f"at {moment}")
    assert told == [(0.0, "at 100.0"), (0.4, "at 100.3"), (1.0, "at 101.0")]


KNOWN = Identity("code", "data")


def checkpointed(tmp_path: Path, *, identity: Identity = KNOWN, **more: object) -> Checkpoint | None:
    settings = {"pairs": 20, "stride": 1, **{name: more.pop(name) for name in ("pairs", "stride") if name in more}}
    case = Case("capacity", "delta", "recurrent", Point(settings), 0, "smoke")  # type: ignore[arg-type]
    bench = Lab(replace(case, **more), None, evaluation=("stride",), identity=identity, checkpoints=tmp_path)  # type: ignore[arg-type]
    return bench.checkpoint()


def test_a_checkpoint_belongs_to_all_that_training_hangs_on_and_to_nothing_else(tmp_path: Path) -> None:
    usual = checkpointed(tmp_path)
    assert usual is not None
    assert usual.path.parent == tmp_path
    others = [
        checkpointed(tmp_path, **changed)  # type: ignore[arg-type]
        for changed in (
            {"pairs": 21},
            {"suite": "rewrite"},
            {"variant": "linear"},
            {"form": "chunkwise"},
            {"seed": 1},
            {"device": "cuda"},
            {"device": "cpu*2"},
            {"threads": 2},
            {"identity": Identity("other", "data")},
            {"identity": Identity("code", "other")},
        )
    ]
    assert len({one.path for one in (usual, *others) if one is not None}) == 11
    for same in ({"stride": 2}, {"scale": "paper"}):
        assert checkpointed(tmp_path, **same).path == usual.path  # type: ignore[arg-type, union-attr]
    first, second = (checkpointed(tmp_path, device=device) for device in ("cuda", "cuda:1"))
    assert first is not None
    assert second is not None
    assert first.path == second.path


def test_a_case_without_an_identity_has_no_checkpoint() -> None:
    assert lab().checkpoint() is None


def test_a_case_has_one_checkpoint() -> None:
    bench = lab()
    bench.identity = Identity("code", "data")
    bench.checkpoint()
    with pytest.raises(ValueError, match="a case has one checkpoint, and it was asked for before"):
        bench.checkpoint()
