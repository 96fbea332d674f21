"""Does a form compute the function? The recurrent form is the oracle, and finite differences are the oracle of its gradient."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from attnbench.harness.checks.trial import (
    FINITE_DIFFERENCES,
    TOLERANCES,
    Sizes,
    Tokens,
    Trial,
    Wrong,
    agree,
    converted,
    part_of,
    prefixed,
    weighted_sum,
)
from attnbench.variants.contract import Memory
from attnbench.variants.errors import Unsupported

LENGTHS = (1, 3, 63, 64, 100)
DECODED = (1, 20)


def shapes(trial: Trial) -> str:
    """In every dtype of the form: values of the shape and dtype of v (a layer's: of x), a mapping of tensors, all finite."""
    like = trial.values_like
    for dtype in trial.dtypes:
        for length in (1, trial.length):
            tokens = converted(trial.tokens(length), getattr(torch, dtype), trial.device)
            values, memory = trial.run(tokens)
            where = f"T={length} in {dtype}"
            expected = tuple(tokens[like].shape)
            if tuple(values.shape) != expected or values.dtype != tokens[like].dtype:
                raise Wrong(f"{where}: values are {_described(values)}, expected {dtype} {list(expected)}")
            if not isinstance(memory, Mapping) or not all(isinstance(one, Tensor) for one in memory.values()):
                raise Wrong(f"{where}: the memory must map names to tensors, got {memory!r}")
            for name, one in {"values": values, **prefixed("memory", memory)}.items():
                if one.device.type != torch.device(trial.device).type:
                    raise Wrong(f"{where}: {name} is on {one.device}, expected {trial.device}")
                if not bool(torch.isfinite(one).all()):
                    raise Wrong(f"{where}: {name} is not finite")
    return f"those of {like} in {', '.join(trial.dtypes)}"


def equals_recurrent(trial: Trial) -> str:
    """Values, memory and gradients are those of the recurrent form, at several lengths, without and with a memory."""
    largest = max(_difference_from_recurrent(trial, length, None) for length in LENGTHS)
    try:
        return _largest(max(largest, *(_difference_from_recurrent(trial, length, trial.past()) for length in LENGTHS)))
    except Unsupported as lack:
        return f"{_largest(largest)} without a memory, and with one: {lack}"


def step_equals_full(trial: Trial) -> str:
    """One token after the other gives what the recurrent form gives in one pass."""
    return _largest(
        max(_difference_from_recurrent(trial, length, memory) for length in DECODED for memory in (None, trial.past()))
    )


def gradient(trial: Trial) -> str:
    """The recurrent form's own gradient is that of finite differences, without and with a memory."""
    if trial.dtype != torch.float64:
        raise Unsupported("finite differences need float64, which this form does not declare.")
    small = trial.at(Sizes(trial.key_widths(1, smallest=4)[0], value_width=3, batch=1, heads=1))
    tokens, parameters = small.tokens(3, "differences"), small.parameters(trial.dtype)
    for memory in (None, small.past("before differences")):
        leaves = {name: tokens[name] for name in trial.variant.inputs}
        leaves |= prefixed("parameter", parameters) | prefixed("memory", memory or {})
        try:
            gradcheck(
                _results_of_leaves(small, tokens, list(leaves), memory),
                tuple(one.detach().clone().requires_grad_(one.is_floating_point()) for one in leaves.values()),
                atol=FINITE_DIFFERENCES.absolute,
                rtol=FINITE_DIFFERENCES.relative,
                # compares one random projection of the Jacobian, not every element
                fast_mode=True,
            )
        except GradcheckError as problem:
            raise Wrong("with a memory: " * (memory is not None) + str(problem).split("\n\n")[0]) from problem
    return f"finite differences agree at T=3 within {FINITE_DIFFERENCES.relative:.0e}"


def low_precision(trial: Trial) -> str:
    """With inputs of half precision: near the recurrent form in float32 on the same inputs, and a state in float32."""
    halves = [one for one in ("bfloat16", "float16") if one in trial.dtypes]
    if not halves:
        raise Unsupported(f"{trial.variant.name}/{trial.form} declares no dtype of half precision.")
    if "float32" not in trial.oracle.dtypes:
        raise Unsupported(f"{trial.variant.name}/recurrent does not declare float32, which this is compared in.")
    largest = 0.0
    for half in halves:
        dtype = getattr(torch, half)
        tokens = converted(trial.tokens(trial.length), dtype, trial.device)
        # of a layer the parameters too, as they are in half precision
        parameters = trial.parameters(dtype)
        expected, _ = trial.oracle.run(
            converted(tokens, torch.float32, trial.oracle.device),
            parameters=converted(parameters, torch.float32, trial.oracle.device),
        )
        first, memory = trial.run(part_of(tokens, 0, 5), None, parameters)
        second, memory = trial.run(part_of(tokens, 5), memory, parameters)
        values = torch.cat([first, second], dim=1)
        found = agree({"values": values.double()}, {"values": expected.double()}, TOLERANCES[dtype], half)
        largest = max(largest, found)
        for name, one in memory.items():
            if one.is_floating_point() and one.dtype.itemsize < 4 and not _is_made_of(one, tokens):
                raise Wrong(f"{half}: memory {name} is kept in {str(one.dtype).removeprefix('torch.')}, not in float32")
    return f"{_largest(largest)} in {', '.join(halves)}"


def readout(trial: Trial) -> str:
    """Weights for queries asked at the end give what the recurrent form reads there, gradients included."""
    weights_of = trial.variant.readout
    if weights_of is None:
        raise Unsupported(f"{trial.variant.name} has no readout.")

    def read(queries: Tensor, leaves: Tokens, extra: Mapping[str, Tensor | None]) -> Tensor:
        named = {name: leaves[name] for name in trial.variant.inputs if name not in ("q", "v")}
        weights = weights_of(queries, **named, **extra)
        shape = (trial.sizes.batch, queries.shape[1], trial.sizes.heads, leaves["k"].shape[1])
        if tuple(weights.shape) != shape:
            raise Wrong(f"N={queries.shape[1]}: weights are {_described(weights)}, expected [B,N,H,T] = {list(shape)}")
        return torch.einsum("b n h t, b t h v -> b n h v", weights, leaves["v"])

    return _largest(max(_difference_at_the_end(trial, asked, 20, read) for asked in (1, 3)))


def written_then_read(trial: Trial) -> str:
    """A text that is written whole leaves the recurrent form's memory, and is read as that form reads at its end."""

    def read(queries: Tensor, leaves: Tokens, extra: Mapping[str, Tensor | None]) -> Tensor:
        draws = extra.get("draws")
        memory = trial.variant.written(leaves["k"], leaves["v"], leaves["beta"], draws)
        _, right = trial.run(leaves)
        found, expected = (
            prefixed("memory", {name: one.detach() for name, one in of.items()}) for of in (memory, right)
        )
        agree(found, expected, trial.tolerance, f"T={leaves['k'].shape[1]}")
        return trial.variant.asked(queries, memory, draws)

    lengths = (20, 100)
    return _largest(max(_difference_at_the_end(trial, asked, length, read) for asked in (1, 3) for length in lengths))


def _difference_at_the_end(
    trial: Trial, asked: int, length: int, read: Callable[[Tensor, Tokens, Mapping[str, Tensor | None]], Tensor]
) -> float:
    """The largest difference between what `read` gives for so many queries and what the recurrent form reads for each of
    them at the last token, gradients included. Raises Wrong.
    """
    extra = {} if trial.variant.draws is None else {"draws": trial.draws()}
    queries = trial.tokens(asked, "asked")["q"].requires_grad_()
    leaves = {name: one.requires_grad_() for name, one in trial.tokens(length).items()}
    named = [name for name in trial.variant.inputs if name != "q"]
    wanted = [queries, *(leaves[name] for name in named)]
    found = read(queries, leaves, extra)
    right = []
    for query in torch.split(queries, 1, dim=1):
        values, _ = trial.run({**leaves, "q": torch.cat([leaves["q"][:, :-1], query], dim=1)})
        right.append(values[:, -1:])
    outcomes = []
    for values in (found, torch.cat(right, dim=1)):
        gradients = torch.autograd.grad(weighted_sum({"values": values}), wanted, materialize_grads=True)
        named_gradients = zip(("queries", *named), gradients, strict=True)
        outcomes.append({"values": values.detach()} | {f"gradient of {name}": one for name, one in named_gradients})
    return agree(outcomes[0], outcomes[1], trial.tolerance, f"N={asked}")


def _difference_from_recurrent(trial: Trial, length: int, memory: Memory | None) -> float:
    """The largest difference at one length, with this memory to begin with. Raises Wrong."""
    oracle, tokens = trial.oracle, trial.tokens(length)
    exact = None if memory is None else converted(memory, oracle.dtype, oracle.device)
    expected = oracle.outcome(converted(tokens, oracle.dtype, oracle.device), exact)
    where = f"T={length}" + (" with a memory" if memory else "")
    return agree(trial.outcome(tokens, memory), expected, trial.tolerance, where)


def _results_of_leaves(
    trial: Trial, tokens: Tokens, names: list[str], memory: Memory | None
) -> Callable[..., tuple[Tensor, ...]]:
    """A function of the inputs, parameters and memory tensors called `names`, for gradcheck: every result of floating point."""
    own = trial.parameters(trial.dtype)

    def results(*leaves: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, leaves, strict=True))
        past = None if memory is None else {name: given[f"memory {name}"] for name in memory}
        parameters = {name: given[f"parameter {name}"] for name in own}
        values, written = trial.run({name: given.get(name, tokens[name]) for name in tokens}, past, parameters)
        return (values, *(one for one in written.values() if one.is_floating_point()))

    return results


def _is_made_of(kept: Tensor, tokens: Tokens) -> bool:
    """Whether a memory tensor holds input values as they came, and nothing computed."""
    return any(bool(torch.isin(kept, given).all()) for given in tokens.values() if given.dtype == kept.dtype)


def _largest(difference: float) -> str:
    return f"largest difference {difference:.1e}"


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
