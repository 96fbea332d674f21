"""What does a form look at, what does it pass on, and what does it touch?"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from attnbench.harness.checks.trial import Tolerance, Trial, Wrong, agree, part_of, prefixed, weighted_sum

EXACT = Tolerance(relative=0.0, absolute=0.0)


def causality(trial: Trial) -> str:
    """Changing tokens from t on leaves the values before t alone, and these have no gradient there."""
    length, inside = 100, (37, 64)
    tokens, other = trial.tokens(length), trial.tokens(length, "other")
    before = trial.outcome(tokens, with_gradients=False)["values"]
    largest = 0.0
    for t in (1, *inside, length - 1):
        changed = {name: torch.cat([tokens[name][:, :t], other[name][:, t:]], dim=1) for name in tokens}
        after = trial.outcome(changed, with_gradients=False)["values"]
        where = f"tokens changed from t={t} on"
        largest = max(
            largest,
            agree({"an earlier value": after[:, :t]}, {"an earlier value": before[:, :t]}, trial.tolerance, where),
        )
    leaves = {name: tokens[name].clone().requires_grad_() for name in trial.variant.inputs}
    values, _ = trial.run({**tokens, **leaves})
    for t in inside:
        gradients = torch.autograd.grad(
            weighted_sum({"values": values[:, :t]}), list(leaves.values()), retain_graph=True, materialize_grads=True
        )
        for name, found in zip(leaves, gradients, strict=True):
            worst = float(found[:, t:].abs().max())
            if not worst <= trial.tolerance.allowed(found.double()):
                raise Wrong(f"values before t={t} have a gradient of {worst:.2g} with respect to {name} from t on")
    return f"largest change of an earlier value {largest:.1e}"


def split_and_resume(trial: Trial) -> str:
    """A sequence cut into pieces, the memory passed on, gives what one pass gives."""
    length = 100
    tokens = trial.tokens(length)
    whole = trial.outcome(tokens, with_gradients=False)
    largest = 0.0
    for cuts in ((1,), (64,), (99,), (37, 70)):
        outputs, memory = [], None
        with torch.no_grad():
            for begin, end in zip((0, *cuts), (*cuts, length), strict=True):
                values, memory = trial.run(part_of(tokens, begin, end), memory)
                outputs.append(values)
        assert memory is not None
        pieces = {"values": torch.cat(outputs, dim=1), **prefixed("memory", memory)}
        where = f"cut at {' and '.join(map(str, cuts))} of {length}"
        doubled = {name: one.double() for name, one in pieces.items()}
        largest = max(largest, agree(doubled, whole, trial.tolerance, where))
    return f"largest difference {largest:.1e}"


def independence(trial: Trial) -> str:
    """What one batch entry or head gets has no influence on another; a layer's projections mix its heads on purpose."""
    tokens, other = trial.tokens(trial.length), trial.tokens(trial.length, "other")
    past = trial.past()
    changed_past = {name: torch.cat([one[:1], past[name][1:] + 1]) for name, one in past.items()}
    before = trial.outcome(tokens, past, with_gradients=False)
    changed = {name: torch.cat([tokens[name][:1], other[name][1:]]) for name in tokens}
    after = trial.outcome(changed, changed_past, with_gradients=False)
    batch = agree(
        {name: one[:1] for name, one in after.items()},
        {name: one[:1] for name, one in before.items()},
        trial.tolerance,
        "batch entry 1 changed, entry 0 read",
    )
    if trial.variant.is_layer:
        return f"largest change of another batch entry {batch:.1e}"
    before = trial.outcome(tokens, with_gradients=False)
    changed = {name: torch.cat([tokens[name][:, :, :1], other[name][:, :, 1:]], dim=2) for name in tokens}
    after = trial.outcome(changed, with_gradients=False)
    heads = agree(
        {"values": after["values"][:, :, :1]},
        {"values": before["values"][:, :, :1]},
        trial.tolerance,
        "head 1 changed, head 0 read",
    )
    return f"largest change of another {max(batch, heads):.1e}"


def determinism(trial: Trial) -> str:
    """The same inputs give the same values, memory and gradients twice, to the last bit."""
    tokens, past = trial.tokens(trial.length), trial.past()
    agree(trial.outcome(tokens, past), trial.outcome(tokens, past), EXACT, "two runs")
    return "equal to the last bit"


def inputs_untouched(trial: Trial) -> str:
    """The inputs and the memory that are handed in stay as they were."""
    tokens, past, parameters = trial.tokens(trial.length), trial.past(), trial.parameters(trial.dtype)
    given = {**tokens, **prefixed("memory", past), **prefixed("parameter", parameters)}
    before = {name: one.clone() for name, one in given.items()}
    with torch.no_grad():
        trial.run(tokens, past, parameters)
    for name, one in given.items():
        if one.shape != before[name].shape or not torch.equal(one, before[name]):
            raise Wrong(f"{name} is changed in place")
    return "left as they were"


def nan_poisoning(trial: Trial) -> str:
    """Memory that torch hands out filled with NaN changes nothing: no result reads what was never written."""
    tokens, past = trial.tokens(trial.length), trial.past()
    expected = trial.outcome(tokens, past)
    with _poisoned_allocations():
        found = trial.outcome(tokens, past)
    return f"largest difference {agree(found, expected, trial.tolerance, 'allocations filled with NaN'):.1e}"


@contextmanager
def _poisoned_allocations() -> Iterator[None]:
    """Uninitialised memory filled with NaN, which torch does in its deterministic mode only."""
    settings: Any = torch.utils.deterministic
    fills = settings.fill_uninitialized_memory
    mode = torch.get_deterministic_debug_mode()
    settings.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        settings.fill_uninitialized_memory = fills
        torch.set_deterministic_debug_mode(mode)
