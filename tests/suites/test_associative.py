"""The fast retrieval model computes what the straightforward one does, and the sequences are the paper's."""

from collections.abc import Iterable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from straightforward import ElementwisePlusOne, Products, delta_rule_loss, sum_rule_loss
from torch import Tensor

from attnbench.harness.errors import BadParameter
from attnbench.harness.lab import Lab
from attnbench.harness.probes import counted_work
from attnbench.harness.seeds import generator
from attnbench.harness.spec import Case, Point
from attnbench.suites import capacity, rewrite
from attnbench.suites.tasks.associative import (
    READOUT,
    Retrieval,
    Sampler,
    Sequences,
    feature_rank,
    median_denominator,
    point,
    squared_error,
)
from attnbench.variants import find

RULES = {
    "linear": (sum_rule_loss, ElementwisePlusOne()),
    "dpfp-nu1": (sum_rule_loss, Products(1)),
    "dpfp-nu3": (sum_rule_loss, Products(3)),
    "delta": (delta_rule_loss, ElementwisePlusOne()),
    "dpfp-nu2+delta": (delta_rule_loss, Products(2)),
}


def double(name: str, symbols: int, key_width: int) -> Retrieval:
    return Retrieval(find(name), symbols, key_width, generator("init")).double()


def gradients(model: Retrieval, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("repeats", [False, True], ids=["permutations", "with replacement"])
@pytest.mark.parametrize("asks_all", [False, True], ids=["one query", "all queries"])
def test_loss_and_gradients_equal_the_straightforward_model(name: str, repeats: bool, asks_all: bool) -> None:
    model = double(name, symbols=12, key_width=8)
    asked = Sampler(12, 24 if repeats else 12, repeats)(generator("data"), 1 if asks_all else 4, asks_all)
    oracle, phi = RULES[name]
    fast = squared_error(model.read(asked, READOUT, None), asked.targets)
    plain = oracle(model, asked, phi)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(gradients(model, fast), gradients(model, plain), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    "name", ["softmax", "linear", "performer-m64+scaled", "dpfp-nu1+delta", "gated", "delta+attnnorm"]
)
@pytest.mark.parametrize("form", ["recurrent", "parallel"])
def test_the_readout_equals_an_ordinary_form_on_one_hot_values(name: str, form: str) -> None:
    model = double(name, symbols=7, key_width=6)
    asked = Sampler(7, 14, repeats=True)(generator("data", name), 3, asks_all=False)
    random = model.variant.draws
    draws = None if random is None else random.sample(generator("draws"), 1, 6).double()
    torch.testing.assert_close(model.read(asked, READOUT, draws), model.read(asked, form, draws), rtol=1e-9, atol=1e-11)


def test_paper_size_step_equals_the_straightforward_model() -> None:
    # S = 600, d_key = 64, DPFP-3, batch 32: the largest memory of the paper's Figure 2 by a parameter-free map
    model = double("dpfp-nu3", symbols=600, key_width=64)
    asked = Sampler(600, 600, repeats=False)(generator("data"), 32, asks_all=False)
    fast = squared_error(model.read(asked, READOUT, None), asked.targets)
    plain = sum_rule_loss(model, asked, Products(3))
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(gradients(model, fast), gradients(model, plain), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-12)


@given(symbols=st.integers(1, 30), batch=st.integers(1, 5), seed=st.integers(0, 1000))
def test_capacity_writes_every_key_and_every_value_once(symbols: int, batch: int, seed: int) -> None:
    asked = Sampler(symbols, symbols, repeats=False)(generator(seed), batch, asks_all=False)
    everything = torch.arange(symbols).expand(batch, symbols)
    assert torch.equal(asked.keys.sort(1).values, everything)
    assert torch.equal(asked.values.sort(1).values, everything)


@given(symbols=st.integers(1, 12), asks_all=st.booleans(), seed=st.integers(0, 1000))
def test_the_target_is_the_value_written_last_under_the_key(symbols: int, asks_all: bool, seed: int) -> None:
    asked = Sampler(symbols, 2 * symbols, repeats=True)(generator(seed), 1, asks_all)
    keys, values = asked.keys[0].tolist(), asked.values[0].tolist()
    last = dict(zip(keys, values, strict=True))
    assert [last[key] for key in asked.queries[0].tolist()] == asked.targets[0].tolist()
    if asks_all:
        assert sorted(last) == asked.queries[0].tolist()


def test_answering_zero_costs_one_half_and_answering_right_costs_nothing() -> None:
    targets = torch.tensor([[2]])
    assert squared_error(torch.zeros(1, 1, 5), targets) == 0.5
    assert squared_error(torch.nn.functional.one_hot(targets, 5).float(), targets) == 0
    # the uniform answer 1/5: half of (4/5)^2 + 4 (1/5)^2 = 0.5 (1 - 1/5)
    assert squared_error(torch.full((1, 1, 5), 0.2), targets).item() == pytest.approx(0.4)


def test_the_load_of_a_rewriting_sequence_is_the_expected_one() -> None:
    # 2S draws of S keys leave each out with probability (1 - 1/S)^2S: 0.871 S at S = 20
    asked = Sampler(20, 40, repeats=True)(generator("load"), 2000, asks_all=False)
    load = sum(len(set(row)) for row in asked.keys.tolist()) / 2000
    assert load == pytest.approx(20 * (1 - (1 - 1 / 20) ** 40), rel=0.01)


def test_the_data_do_not_depend_on_the_variant_or_the_form() -> None:
    labs = [
        Lab(Case("capacity", name, form, Point(pairs=5, key_width=4), 3, "smoke"), find(name))
        for name, form in (("linear", "readout"), ("delta", "recurrent"))
    ]
    first, second = (Sampler(5, 5, repeats=False)(lab.generator("data", "training"), 8, asks_all=False) for lab in labs)
    assert torch.equal(first.keys, second.keys)
    assert torch.equal(first.targets, second.targets)


@pytest.mark.parametrize(
    ("suite", "name", "form"),
    [(capacity, "linear", "readout"), (rewrite, "delta", "readout"), (capacity, "fwm", "recurrent")],
)
def test_a_case_records_its_metrics_and_its_learning_curve(suite: object, name: str, form: str) -> None:
    declared = suite.SUITE  # type: ignore[attr-defined]
    case = Case(declared.name, name, form, declared.scales["smoke"].points[0], 0, "smoke")
    lab = Lab(case, find(name))
    suite.measure(lab)  # type: ignore[attr-defined]
    recorded = {one.metric: one.value for one in lab.measurements}
    assert set(declared.metrics) <= set(recorded)
    assert recorded["training_steps"] == 20
    assert recorded["retrieval_loss"] <= recorded["last_retrieval_loss"]
    (curve,) = lab.curves
    assert curve.x == (10, 20)
    assert recorded["retrieval_loss"] == min(curve.y)


def measured(suite: object, name: str, at: Point, seed: int = 0, form: str = READOUT) -> Lab:
    lab = Lab(Case(suite.SUITE.name, name, form, at, seed, "smoke"), find(name))  # type: ignore[attr-defined]
    suite.measure(lab)  # type: ignore[attr-defined]
    return lab


def recorded(lab: Lab) -> dict[str, float]:
    return {one.metric: one.value for one in lab.measurements}


SMALL = {"key_width": 8, "batch": 4, "max_steps": 10, "evaluate_every": 5}


def test_the_code_protocol_asks_at_most_200_keys_those_with_the_smallest_numbers() -> None:
    asked = Sampler(300, 300, repeats=False, most_queries=200)(generator("capped"), 1, asks_all=True)
    assert asked.queries[0].tolist() == list(range(200))
    assert asked.targets[0].tolist() == [
        dict(zip(asked.keys[0].tolist(), asked.values[0].tolist(), strict=True))[key] for key in range(200)
    ]


def test_the_code_protocol_evaluates_rewriting_on_half_the_length_it_trains_on() -> None:
    # of S keys, S writes reach 0.632 S and 2S writes 0.865 S in the mean (S large); 20 sequences of 50 keys
    loads = {
        protocol: recorded(measured(rewrite, "linear", point(keys=50, protocol=protocol, **SMALL)))["distinct_keys"]
        for protocol in ("text", "code")
    }
    assert loads["text"] == pytest.approx(50 * (1 - (1 - 1 / 50) ** 100), rel=0.05)
    assert loads["code"] == pytest.approx(50 * (1 - (1 - 1 / 50) ** 50), rel=0.05)


@pytest.mark.parametrize(("protocol", "patience"), [("text", 2), ("code", 3)])
def test_the_code_protocol_waits_one_evaluation_longer_for_a_new_best(protocol: str, patience: int) -> None:
    # evaluated at every step, with two random directions, the loss scatters, so training soon stops
    at = point(pairs=8, protocol=protocol, **{**SMALL, "patience": 2, "max_steps": 500, "evaluate_every": 1})
    (curve,) = measured(capacity, "performer-m2", at).curves
    assert len(curve.y) < 500
    assert len(curve.y) - 1 - curve.y.index(min(curve.y)) == patience


@pytest.mark.parametrize(
    ("protocol", "different"), [("text", 1), ("code", 2 * 20)], ids=["one draw", "a draw for each sequence"]
)
def test_what_is_random_is_drawn_anew_in_evaluation_under_the_code_protocol(
    protocol: str, different: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    original = Lab.draws

    def watched(lab: Lab, heads: int, key_width: int, *parts: str | int) -> Tensor | None:
        drawn.append(parts)
        return original(lab, heads, key_width, *parts)

    monkeypatch.setattr(Lab, "draws", watched)
    measured(capacity, "performer-m4", point(pairs=4, protocol=protocol, **SMALL))
    in_evaluation = {parts for parts in drawn if parts[0] == "evaluation" and parts[1:2] != (0,)}
    assert len(in_evaluation) == different
    assert len({parts for parts in drawn if parts[0] == "training"}) == 10


@pytest.mark.parametrize(
    ("name", "protocol", "expected"),
    [("fwm", "text", (1e-3, 4)), ("fwm", "code", (1e-4, 16)), ("dpfp-nu1+fwm", "code", (1e-3, 4))],
)
def test_the_code_protocol_trains_fwm_on_tanh_keys_slower_and_in_larger_batches(
    name: str, protocol: str, expected: tuple[float, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, batches = [], set()
    adam, sample = torch.optim.Adam, Sampler.__call__

    def watched_adam(parameters: Iterable[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
        rates.append(lr)
        return adam(parameters, lr=lr)

    def watched_sample(sampler: Sampler, generator: torch.Generator, batch: int, asks_all: bool) -> Sequences:
        batches.add(batch)
        return sample(sampler, generator, batch, asks_all)

    monkeypatch.setattr(torch.optim, "Adam", watched_adam)
    monkeypatch.setattr(Sampler, "__call__", watched_sample)
    measured(rewrite, name, point(keys=3, protocol=protocol, **SMALL), form="recurrent")
    assert (rates[0], max(batches)) == expected


@pytest.mark.parametrize("suite", [capacity, rewrite])
def test_a_protocol_that_there_is_not_is_refused_with_the_nearest_one(suite: object) -> None:
    with pytest.raises(BadParameter, match="code"):
        suite.SUITE.check(point(pairs=5, protocol="cod"))  # type: ignore[attr-defined]


def test_the_denominator_is_the_sum_of_products_of_features() -> None:
    lab = Lab(Case("capacity", "linear", READOUT, point(pairs=6), 0, "smoke"), find("linear"))
    model, sequences = double("linear", symbols=6, key_width=4), Sampler(6, 6, repeats=False)
    data = lab.generator("data", "denominators")
    by_hand = []
    for _ in range(20):
        k, q, _ = model.inputs(sequences(data, 1, True))
        phi_k, phi_q = ((torch.nn.functional.elu(x) + 1)[0, :, 0] for x in (k, q))
        by_hand += (phi_q @ phi_k.sum(0)).tolist()
    assert median_denominator(model, sequences, lab, None) == pytest.approx(torch.tensor(by_hand).median().item())


def test_the_published_performer_divides_by_less_than_its_epsilon_and_the_scaled_one_does_not() -> None:
    # keys grow with the width 2.2 S of their embeddings: at S = 100 |k|^2 is about 75, so products carry exp(-75)
    at = point(pairs=100, max_steps=1, evaluate_every=1)
    published, scaled = (
        recorded(measured(capacity, name, at))["denominator_at_start"]
        for name in ("performer-m64", "performer-m64+scaled")
    )
    assert published < 1e-9
    assert scaled > 1e-3


@pytest.mark.parametrize(
    ("name", "key_width", "rank"),
    [
        ("linear", 6, 6),
        ("delta", 6, 6),
        ("fwp1991", 6, 6),
        ("dpfp-nu1", 6, 12),
        ("dpfp-nu3", 6, 36),
        # at K = 4 shifts 3 and 5 repeat each other, and shift 4 is dead: 2 K (K - 1) = 24 is all there is
        ("dpfp-nu3", 4, 24),
        ("performer-m5", 6, 10),
    ],
)
def test_the_rank_is_what_the_features_span(name: str, key_width: int, rank: int) -> None:
    lab = Lab(Case("capacity", name, READOUT, point(pairs=6), 0, "smoke"), find(name))
    assert feature_rank(lab, key_width) == rank


def test_softmax_has_neither_features_nor_a_rank_nor_a_denominator() -> None:
    found = recorded(measured(capacity, "softmax", point(pairs=4, **SMALL)))
    assert not {"feature_width", "feature_rank", "denominator_at_start"} & set(found)


@pytest.mark.parametrize("name", ["performer-m8", "dpfp-nu1+delta"])
def test_the_same_case_gives_the_same_losses_to_the_last_bit(name: str) -> None:
    first, second = (measured(capacity, name, point(pairs=12, **{**SMALL, "max_steps": 40})) for _ in range(2))
    assert first.curves == second.curves


def test_the_work_of_one_more_sequence_grows_by_its_answer_alone_with_the_one_hot_width() -> None:
    def marginal_work(symbols: int) -> int:
        model = Retrieval(find("linear"), symbols, 16, generator("init"))

        def step(batch: int) -> None:
            index = torch.arange(8).expand(batch, 8)
            asked = Sequences(index, index, index[:, :1], index[:, :1])
            squared_error(model.read(asked, READOUT, None), asked.targets).backward()

        return counted_work(lambda: step(3)) - counted_work(lambda: step(2))

    # an S x D memory would add 16 numbers a symbol each time it is touched; the answer adds one
    assert marginal_work(2000) - marginal_work(1000) < 16 * 1000
