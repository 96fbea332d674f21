"""Is what a variant declares about itself true?"""

import math
from functools import partial

import torch

from attnbench.harness import seeds
from attnbench.harness.checks.trial import Sizes, Trial, Wrong, agree, part_of
from attnbench.harness.probes import counted_work
from attnbench.variants.errors import Unsupported

# exponents of the work that count as the class
COST_CLASSES = {"linear": (0.0, 1.3), "quadratic": (1.5, 2.3)}


def state_size(trial: Trial) -> str:
    """`state_floats` is the number of elements that one head keeps, at several widths and lengths."""
    first, second = trial.key_widths(2)
    seen = []
    for key_width, value_width, length in ((first, 6, 5), (second, 4, 9), (first, 10, 70)):
        here = trial.at(Sizes(key_width, value_width))
        sizes = here.sizes
        claimed = trial.variant.state_floats(sizes.key_width, sizes.value_width, length)
        with torch.no_grad():
            _, memory = here.run(here.tokens(length))
        real = sum(one.numel() for one in memory.values()) / (sizes.batch * sizes.heads)
        where = f"K={sizes.key_width}, V={sizes.value_width}, T={length}"
        if claimed != real:
            kept = ", ".join(f"{name} {list(one.shape)}" for name, one in memory.items())
            raise Wrong(f"{where}: {claimed} floats a head are declared, {real:g} are kept ({kept})")
        seen.append(str(claimed))
    return f"{', '.join(seen)} floats a head"


def cost_class(trial: Trial) -> str:
    """The work of a forward and a backward pass grows with T as the form declares."""
    if not trial.declared.counts_work:
        raise Unsupported(f"{trial.variant.name}/{trial.form} runs a kernel whose work torch does not count.")
    # a chunk is 64 tokens; a form that goes token by token shows its class sooner
    shortest = 8 if trial.is_oracle or trial.takes_one_token else 64
    small = trial.at(Sizes(trial.key_widths(1, smallest=4)[0], value_width=4, batch=1, heads=1))
    work = [
        counted_work(partial(small.outcome, small.tokens(length))) for length in (shortest, 2 * shortest, 4 * shortest)
    ]
    # differences, so that what does not depend on T drops out
    exponent = math.log2((work[2] - work[1]) / (work[1] - work[0]))
    low, high = COST_CLASSES[trial.declared.cost]
    if not low <= exponent < high:
        raise Wrong(f"declared {trial.declared.cost}, but the work grows as T^{exponent:.2f}")
    return f"T^{exponent:.2f}"


def keep(trial: Trial) -> str:
    """A memory cut down to its last n tokens holds what these n alone leave; all of it where there are fewer."""
    cut = trial.variant.keep
    if cut is None:
        raise Unsupported(f"{trial.variant.name} cuts no memory.")
    length, largest = 9, 0.0
    tokens = trial.tokens(length)
    with torch.no_grad():
        _, memory = trial.run(tokens)
        for kept in (1, 4, length):
            _, expected = trial.run(part_of(tokens, length - kept))
            where = f"{kept} of {length} tokens kept"
            largest = max(largest, agree(cut(memory, kept), expected, trial.tolerance, where))
        largest = max(
            largest, agree(cut(memory, length + 1), memory, trial.tolerance, "more tokens kept than there are")
        )
        if any(one.numel() for one in cut(memory, 0).values()):
            raise Wrong("no tokens kept: the memory is not empty")
    return f"largest difference {largest:.1e}"


def draws(trial: Trial) -> str:
    """What is random is [H,...], finite, and determined by the generator alone."""
    declared = trial.variant.draws
    if declared is None:
        raise Unsupported(f"{trial.variant.name} draws nothing.")
    heads = 3
    first, again, other = (
        declared.sample(seeds.generator("checks", part), heads, trial.sizes.key_width)
        for part in ("a draw", "a draw", "another")
    )
    if first.shape[0] != heads:
        raise Wrong(f"a draw for {heads} heads has the shape {list(first.shape)}, expected [H,...]")
    if not bool(torch.isfinite(first).all()):
        raise Wrong("a draw is not finite")
    if not torch.equal(first, again):
        raise Wrong("the same generator gives two different draws")
    if torch.equal(first, other):
        raise Wrong("two generators give the same draw")
    return f"[H,...] = {list(first.shape)}"
