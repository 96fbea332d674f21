"""One form on trial: the inputs it gets, what it makes of them, and how that is held against what was expected."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from attnbench.harness import seeds
from attnbench.variants.contract import INPUTS, Form, Memory, Variant
from attnbench.variants.errors import BadParameter, Unsupported

# q, k, v [B,T,H,...] and beta [B,T,H] by name; all four, whatever the variant uses. Of a whole layer x [B,T,H K]
Tokens = Mapping[str, Tensor]
# values, memory tensors and gradients by name, in float64
Outcome = Mapping[str, Tensor]


@dataclass(frozen=True)
class Sizes:
    """The axes of a trial's inputs, but for T. V is not K, so that one taken for the other shows."""

    key_width: int
    value_width: int = 6
    batch: int = 2
    heads: int = 2


class Wrong(Exception):
    """A check that fails. Says what was found and where."""


@dataclass(frozen=True)
class Tolerance:
    """How far two results may lie apart: `absolute` plus `relative` times the largest magnitude expected."""

    relative: float
    absolute: float

    def allowed(self, expected: Tensor) -> float:
        """The largest difference that counts as equal to `expected`."""
        return self.absolute + self.relative * (float(expected.abs().max()) if expected.numel() else 0.0)


# The one place that tolerances come from, in the checks and in the tests.
TOLERANCES: Mapping[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(relative=1e-9, absolute=1e-10),
    torch.float32: Tolerance(relative=2e-5, absolute=2e-6),
    torch.float16: Tolerance(relative=5e-3, absolute=5e-4),
    torch.bfloat16: Tolerance(relative=3e-2, absolute=3e-3),
}
# of a gradient and its finite differences in float64
FINITE_DIFFERENCES = Tolerance(relative=1e-4, absolute=1e-6)


@dataclass(frozen=True)
class Trial:
    """One form of one variant on one device. `form` is "recurrent" for what concerns the variant as a whole.

    `axes` are the sizes of the inputs, None for those that most checks use.
    """

    variant: Variant
    form: str
    device: str = "cpu"
    axes: Sizes | None = None

    def at(self, sizes: Sizes) -> "Trial":
        """The same trial with inputs of these sizes; values as wide as keys where the form takes no others."""
        return replace(self, axes=replace(sizes, value_width=sizes.key_width) if self.has_equal_widths else sizes)

    @cached_property
    def declared(self) -> Form:
        """The form itself. Raises Unsupported where the variant has none of that name, or not for this device."""
        declared = self.variant.form(self.form)
        kind = torch.device(self.device).type
        if kind not in declared.devices:
            raise Unsupported(
                f"{self.variant.name}/{self.form} needs {' or '.join(declared.devices)}; this device is {kind}."
            )
        return declared

    @property
    def dtypes(self) -> tuple[str, ...]:
        """What the form takes on this device."""
        return self.declared.dtypes_on(torch.device(self.device).type)

    @property
    def has_equal_widths(self) -> bool:
        """Whether the form takes V = K only."""
        return self.variant.form(self.form).has_equal_widths

    @property
    def takes_one_token(self) -> bool:
        """Whether the form is a decoding step."""
        return self.variant.form(self.form).tokens == 1

    @property
    def is_oracle(self) -> bool:
        """Whether this is the form that all others are held against."""
        return self.form == "recurrent"

    @property
    def length(self) -> int:
        """A length that crosses the end of a chunk of 64; token by token there is no chunk."""
        return 20 if self.is_oracle or self.takes_one_token else 70

    @cached_property
    def dtype(self) -> torch.dtype:
        """What the form is compared in: float64 where it and the recurrent form declare it, else its best dtype."""
        oracle = self.variant.form("recurrent").dtypes
        for name in ("float64", "float32", "bfloat16", "float16"):
            if name in self.dtypes and (name != "float64" or name in oracle):
                return getattr(torch, name)
        raise Unsupported(f"{self.variant.name}/{self.form} declares no floating-point dtype.")

    @cached_property
    def tolerance(self) -> Tolerance:
        """What the table allows for the dtype."""
        return TOLERANCES[self.dtype]

    @cached_property
    def oracle(self) -> "Trial":
        """The recurrent form, on the CPU where it cannot run on this device."""
        kind = torch.device(self.device).type
        here = self.device if kind in self.variant.form("recurrent").devices else "cpu"
        return Trial(self.variant, "recurrent", here, self.sizes)

    def key_widths(self, count: int, smallest: int = 8) -> list[int]:
        """The first `count` even key widths from `smallest` up that the variant is defined for."""
        found: list[int] = []
        refusal: BadParameter | None = None
        for width in range(smallest, 514, 2):
            try:
                self.variant.check(width)
            except BadParameter as problem:
                refusal = problem
                continue
            found.append(width)
            if len(found) == count:
                return found
        raise Unsupported(f"{self.variant.name} is defined for too few key widths up to 512: {refusal}")

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the inputs."""
        if self.axes is not None:
            return self.axes
        width = self.key_widths(1)[0]
        return Sizes(width, width) if self.has_equal_widths else Sizes(width)

    @property
    def values_like(self) -> str:
        """The input whose shape and dtype the values have."""
        return "x" if self.variant.is_layer else "v"

    def tokens(self, length: int, part: str = "first") -> Tokens:
        """Random inputs that `part` determines, in the trial's dtype; the same for all forms and variants.

        Betas are small: without a normalisation the delta rule grows with each token where beta |phi(k)|^2 > 2.
        """
        generator, axes = seeds.generator("checks", part, length), self.sizes
        if self.variant.is_layer:
            width = axes.heads * axes.key_width
            x = torch.randn(axes.batch, length, width, generator=generator, dtype=torch.float64)
            return converted({"x": x}, self.dtype, self.device)
        widths = {"q": (axes.key_width,), "k": (axes.key_width,), "v": (axes.value_width,), "beta": ()}
        drawn = {
            name: torch.randn(axes.batch, length, axes.heads, *widths[name], generator=generator, dtype=torch.float64)
            for name in INPUTS
        }
        drawn |= {"q": 0.7 * drawn["q"], "k": 0.7 * drawn["k"], "beta": torch.sigmoid(drawn["beta"] - 2)}
        return converted(drawn, self.dtype, self.device)

    def draws(self) -> Tensor | None:
        """What is random in the variant, the same for all forms; None where nothing is."""
        if self.variant.draws is None:
            return None
        generator = seeds.generator("checks", "draws")
        return self.variant.draws.sample(generator, self.sizes.heads, self.sizes.key_width).to(self.device)

    def parameters(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """The parameters of a layer by name; none where the variant is no layer."""
        if not self.variant.is_layer:
            return {}
        return {name: one.detach() for name, one in self.layer(dtype).named_parameters()}

    def layer(self, dtype: torch.dtype) -> nn.Module:
        """The first of two layers of a model, the same for all forms."""
        assert self.variant.build is not None
        heads, width = self.sizes.heads, self.sizes.heads * self.sizes.key_width
        return self.variant.build(width, heads, 2, seeds.generator("checks", "layer"))[0].to(self.device, dtype)

    def past(self, part: str = "past") -> Memory:
        """A memory to begin with: what the recurrent form keeps of five tokens."""
        tokens = self.tokens(5, part)
        dtype = self.dtype
        if str(dtype).removeprefix("torch.") not in self.oracle.dtypes:
            dtype = self.oracle.dtype
        with torch.no_grad():
            _, memory = self.oracle.run(converted(tokens, dtype, self.oracle.device))
        return {name: kept.to(self.device) for name, kept in memory.items()}

    def run(
        self, tokens: Tokens, memory: Memory | None = None, parameters: Memory | None = None
    ) -> tuple[Tensor, Memory]:
        """Values and memory of the form; a decoding step is run over one token after the other.

        `parameters`, by name, stand in for those that a layer has.
        """
        call = self._called(tokens[self.values_like].dtype, parameters or {})
        pieces = one_by_one(tokens) if self.takes_one_token else iter([tokens])
        outputs = []
        for piece in pieces:
            values, memory = call(piece, memory)
            outputs.append(values)
        assert memory is not None
        return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0], memory

    def outcome(self, tokens: Tokens, memory: Memory | None = None, *, with_gradients: bool = True) -> Outcome:
        """Values, memory and the gradients of a fixed weighted sum of both, with respect to inputs and memory."""
        if not with_gradients:
            with torch.no_grad():
                values, written = self.run(tokens, memory)
            return _detached({"values": values, **prefixed("memory", written)})
        leaves = {name: _leaf(tokens[name]) for name in self.variant.inputs}
        kept = {name: _leaf(one) for name, one in (memory or {}).items()}
        parameters = {name: _leaf(one) for name, one in self.parameters(tokens[self.values_like].dtype).items()}
        values, written = self.run({**tokens, **leaves}, None if memory is None else kept, parameters)
        results = {"values": values, **prefixed("memory", written)}
        differentiable = {name: one for name, one in kept.items() if one.requires_grad}
        wanted = {**leaves, **prefixed("parameter", parameters), **prefixed("memory", differentiable)}
        gradients = torch.autograd.grad(
            weighted_sum(results), list(wanted.values()), allow_unused=True, materialize_grads=True
        )
        return _detached({**results, **prefixed("gradient of", dict(zip(wanted, gradients, strict=True)))})

    def _called(
        self, dtype: torch.dtype, parameters: Memory
    ) -> Callable[[Tokens, Memory | None], tuple[Tensor, Memory]]:
        """The form as a function of tokens and memory, all else given."""
        if self.variant.is_layer:
            bound = _Bound(self.variant, self.form, self.layer(dtype))
            named = {f"layer.{name}": one for name, one in parameters.items()}
            return lambda tokens, memory: functional_call(bound, named, (tokens["x"], memory))
        draws = self.draws()
        return lambda tokens, memory: self.variant.apply(self.form, **tokens, memory=memory, draws=draws)


class _Bound(nn.Module):
    """A form with its layer as one module, which `functional_call` can put other parameters into."""

    def __init__(self, variant: Variant, form: str, layer: nn.Module) -> None:
        super().__init__()
        self.variant, self.form, self.layer = variant, form, layer

    def forward(self, x: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Hidden states and memory."""
        return self.variant.apply_layer(self.form, self.layer, x, memory)


def converted(tensors: Memory, dtype: torch.dtype, device: str | torch.device) -> dict[str, Tensor]:
    """The tensors on a device, those of floating point in a dtype."""
    return {name: one.to(device, dtype if one.is_floating_point() else one.dtype) for name, one in tensors.items()}


def part_of(tokens: Tokens, begin: int, end: int | None = None) -> Tokens:
    """The tokens from `begin` up to `end`."""
    return {name: one[:, begin:end] for name, one in tokens.items()}


def one_by_one(tokens: Tokens) -> Iterator[Tokens]:
    """The tokens, each as a sequence of length one."""
    # by split: the backward of indexing writes a tensor of full length for every token, which the count of work would see
    pieces = [torch.split(one, 1, dim=1) for one in tokens.values()]
    for piece in zip(*pieces, strict=True):
        yield dict(zip(tokens, piece, strict=True))


def weighted_sum(results: Mapping[str, Tensor]) -> Tensor:
    """A number that depends on every result with fixed random weights: the gradients of all of them at once."""
    total = torch.zeros((), dtype=torch.float64)
    for name, one in results.items():
        if one.requires_grad:
            weights = torch.randn(one.shape, generator=seeds.generator("checks", "weights", name), dtype=torch.float64)
            total = total.to(one.device) + (one.double() * weights.to(one.device)).sum()
    return total


def prefixed(prefix: str, tensors: Memory) -> dict[str, Tensor]:
    """The tensors under longer names: `memory S`."""
    return {f"{prefix} {name}": one for name, one in tensors.items()}


def agree(actual: Outcome, expected: Outcome, tolerance: Tolerance, where: str) -> float:
    """The largest difference of two outcomes, relative to the largest magnitude. Raises Wrong beyond the tolerance."""
    if actual.keys() != expected.keys():
        raise Wrong(f"{where}: has {', '.join(actual)}; expected {', '.join(expected)}")
    largest = 0.0
    for name, right in expected.items():
        got = actual[name].to(right.device)
        if got.shape != right.shape:
            raise Wrong(f"{where}: {name} has the shape {list(got.shape)}, expected {list(right.shape)}")
        if not bool(torch.isfinite(right).all()):
            raise Wrong(f"{where}: {name} is not finite in what it is compared with")
        if not bool(torch.isfinite(got).all()):
            raise Wrong(f"{where}: {name} is not finite")
        if not right.numel():
            continue
        apart = (got - right).abs()
        worst, scale = float(apart.max()), float(right.abs().max())
        if worst > tolerance.allowed(right):
            at = [int(one) for one in torch.unravel_index(apart.argmax(), apart.shape)]
            raise Wrong(
                f"{where}: {name} differs by {worst:.2g} at {at}, where {tolerance.allowed(right):.2g} is allowed "
                f"(largest magnitude {scale:.2g})"
            )
        largest = max(largest, worst / max(scale, 1.0))
    return largest


def _leaf(kept: Tensor) -> Tensor:
    return kept.detach().clone().requires_grad_(kept.is_floating_point())


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.detach().double() for name, one in tensors.items()}
