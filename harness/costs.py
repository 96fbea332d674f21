"""What a case would cost, counted on tensors without contents: a step of any size takes seconds and next to no memory.

    2 m n k FLOPs for a product [m,k] @ [k,n]: a multiplication and an addition count one each

Counted is what is carried out: attention under a causal mask is not halved, and what is computed again counts again.
Elementwise operations count nothing, an optimiser's step neither.

Memory: weights, their gradients, the two moments of Adam, and what tensors hold besides at the worst moment of a step, found
as in `predicted`. Of more than three layers, all that follow the second hold what the third does.

Weights and all that comes of them have shapes only; tokens are real, so that what hangs on them (which words are rare)
has its right size:

    cost = of_training(lambda layers: Decoder(..., layers), lambda model, sequences: model.loss(...), layers=16, batch=96, ...)
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from attnbench.harness.predicted import BLOCKS, predicted_peak_bytes
from attnbench.harness.probes import FLOPS


@dataclass(frozen=True)
class Trial:
    """The training step of a case for real, at any number of sequences up to `batch`: what a probe times.

    `call(sequences)` builds the model on its device and gives the step: forwards and backwards, without the optimiser.
    `flops(sequences)` counts the same.
    """

    batch: int
    call: Callable[[int], Callable[[], object]]
    flops: Callable[[int], int]


@dataclass(frozen=True)
class Evaluation:
    """`read(model)` `calls` times in all, on `tokens` tokens together, without gradients."""

    read: Callable[[nn.Module], object]
    calls: int
    tokens: int


@dataclass(frozen=True)
class Cost:
    """What one case takes: trained numbers, training tokens and FLOPs of all steps, and those of all its evaluations.

    Where training may end early it is at most that. `training_bytes` is what tensors hold at most in a step, on one
    device. `trial` is there where a step can be tried out.
    """

    parameters: int
    tokens: int
    steps: int
    flops: int
    evaluation_tokens: int = 0
    evaluation_flops: int = 0
    training_bytes: int = 0
    trial: Trial | None = field(default=None, compare=False, repr=False)


def counted_flops(call: Callable[[], object]) -> int:
    """FLOPs of one call, backward passes inside it included; on real tensors and on those without contents.

    Kernels that torch does not dispatch (Triton, CUDA extensions) are not seen.
    """

    def count() -> int:
        with FlopCounterMode(display=False, custom_mapping=FLOPS) as counter:
            call()
        return int(counter.get_total_flops())

    return quietly(count)


def quietly(call: Callable[[], int]) -> int:
    """What the call gives. What fails is raised; that torch writes it down as well, with all its frames, helps nobody."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, log.disabled = log.disabled, True
    try:
        return call()
    finally:
        log.disabled = was_disabled


def of_training(
    model: Callable[[int], nn.Module],
    loss: Callable[[nn.Module, int], Tensor],
    *,
    batch: int,
    tokens: int,
    steps: int,
    layers: int = 1,
    at_once: int | None = None,
    evaluations: Sequence[Evaluation] = (),
    device: torch.device | None = None,
) -> Cost:
    """The cost of training a model for so many steps on `batch` sequences of `tokens` tokens, and of evaluating it.

    Of the batch `at_once` sequences go forwards and backwards together, all if not given: memory hangs on it alone.

    `model(layers)` builds it on the CPU with so many layers; of more than two, all that follow the first cost what the
    second does. `loss(model, sequences)` is that of so many sequences, whose tokens it puts where the model is.
    `device` is where a trial of the step runs, the CPU if none is given.
    """

    def step_flops(sequences: int) -> int:
        return _in_layers(layers, lambda count: _step_flops(_unreal(model, count), loss, sequences))

    def evaluation_flops(one: Evaluation) -> int:
        return _in_layers(layers, lambda count: _evaluation_flops(_unreal(model, count), one.read))

    def trial(sequences: int) -> Callable[[], object]:
        built = model(layers).to(device or "cpu")
        return lambda: _step(built, loss, sequences)

    return Cost(
        parameters=sum(one.numel() for one in _unreal(model, layers).parameters() if one.requires_grad),
        tokens=steps * batch * tokens,
        steps=steps,
        flops=steps * step_flops(batch),
        evaluation_tokens=sum(one.tokens for one in evaluations),
        evaluation_flops=sum(one.calls * evaluation_flops(one) for one in evaluations),
        training_bytes=training_bytes(model, loss, layers, at_once or batch, "cpu" if device is None else device.type),
        trial=Trial(batch, trial, step_flops),
    )


def training_bytes(
    model: Callable[[int], nn.Module], loss: Callable[[nn.Module, int], Tensor], layers: int, sequences: int, kind: str
) -> int:
    """Bytes that tensors hold at most in a training step with Adam on so many sequences, on a device of `kind`."""

    def held(count: int) -> int:
        built = _unreal(model, count)
        weights = sum(-(-one.numel() * one.element_size() // BLOCKS[kind]) * BLOCKS[kind] for one in built.parameters())
        # as torch does it by default: all weights in one operation on CUDA, one after another on the CPU
        steps = twice(adam_step(built, loss, sequences, foreach=kind == "cuda"))
        return weights + quietly(lambda: predicted_peak_bytes(steps, kind))

    if layers <= 3:
        return held(layers)
    second = held(2)
    return second + (layers - 2) * (held(3) - second)


def adam_step(
    model: nn.Module,
    loss: Callable[[nn.Module, int], Tensor],
    sequences: int,
    parts: int = 1,
    *,
    foreach: bool | None = None,
) -> Callable[[], None]:
    """A training step with Adam on so many parts, one after another, of so many sequences each. `foreach` is that of torch."""
    optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], foreach=foreach)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        for _ in range(parts):
            loss(model, sequences).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def twice(step: Callable[[], None]) -> Callable[[], None]:
    """Two steps: the moments of Adam come up at the end of the first, and are all there in the second."""

    def steps() -> None:
        step()
        step()

    return steps


def zipf_words(words: int, *shape: int) -> Tensor:
    """Words of that shape in the shares in which Zipf's law has them, frequent first: word r, from 0, comes as 1 / (r + 1).

    No draw: place i of n is the word at the share (i + 1/2) / n. Real texts have fewer of the rarest words.
    """
    shares = torch.arange(1, words + 1, dtype=torch.float64).reciprocal().cumsum(0)
    count = torch.Size(shape).numel()
    asked = (torch.arange(count, dtype=torch.float64) + 0.5) / count * shares[-1]
    return torch.searchsorted(shares, asked).view(shape)


def _unreal(model: Callable[[int], nn.Module], layers: int) -> nn.Module:
    """The model with weights that have a shape and no contents. Outside of the mode, tokens stay real."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        return model(layers)


def _in_layers(layers: int, counted: Callable[[int], int]) -> int:
    """What is counted of a model with so many layers, by that of models with one and two."""
    if layers <= 2:
        return counted(layers)
    first = counted(1)
    return first + (layers - 1) * (counted(2) - first)


def _step_flops(model: nn.Module, loss: Callable[[nn.Module, int], Tensor], sequences: int) -> int:
    return counted_flops(lambda: _step(model, loss, sequences))


def _step(model: nn.Module, loss: Callable[[nn.Module, int], Tensor], sequences: int) -> None:
    model.zero_grad(set_to_none=True)
    loss(model, sequences).backward()  # type: ignore[no-untyped-call]


def _evaluation_flops(model: nn.Module, evaluate: Callable[[nn.Module], object]) -> int:
    model.eval()
    with torch.no_grad():
        return counted_flops(lambda: evaluate(model))
