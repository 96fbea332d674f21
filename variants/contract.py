"""The variant contract: what a file in this folder exports, and what everything else may rely on.

A variant = feature map x write rule x normalisation. Axes everywhere:

    B batch   T tokens   H heads   K key width   D feature width   V value width   N queries asked at the end

q, k [B,T,H,K], v [B,T,H,V], beta [B,T,H] in (0, 1), memory S [B,H,V,D]. A token is written first, then read.

A variant can also be a whole layer with parameters of its own, hidden states x [B,T,width] in and out, width = H K.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbench.variants.errors import BadParameter, BadVariant, Unsupported

Queries = Float[Tensor, "B T H K"]
Keys = Float[Tensor, "B T H K"]
Values = Float[Tensor, "B T H V"]
Betas = Float[Tensor, "B T H"]
Features = Float[Tensor, "B T H D"]
Asked = Float[Tensor, "B N H D"]
Weights = Float[Tensor, "B N H T"]
Hidden = Float[Tensor, "B T width"]
Memory = Mapping[str, Tensor]
Output = tuple[Values, Memory]

# The published denominators add this (arXiv:2102.11174, released synthetic code).
EPSILON = 1e-6

INPUTS = ("q", "k", "v", "beta")
LAYER_INPUTS = ("x",)
# what is said of queries and keys, which a whole layer makes for itself
NOT_OF_LAYERS = ("draws", "readout", "denominators", "write", "read", "features", "feature_width")
Cost = Literal["linear", "quadratic"]


@dataclass(frozen=True)
class Form:
    """One way to compute a variant: `call(q, k, v, beta, memory=None, *, draws=None) -> (values, memory)`.

    The variant hands over only the inputs it names; a form of a whole layer is called `call(layer, x, memory)`. `cost` is
    the declared growth of the work with T. `dtypes` and `devices` are what the form was made for, `dtypes_for` names the
    devices on which it takes others. `tokens` is the only T it takes (1 for a decoding step), 0 for any. With
    `has_equal_widths` it takes V = K only. `counts_work` is False where its work is done in kernels that torch does not see.
    `origins` are the files that it comes from beside those of its variant.
    """

    call: Callable[..., tuple[Tensor, Memory]]
    cost: Cost = "linear"
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16")
    tokens: int = 0
    dtypes_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_equal_widths: bool = False
    counts_work: bool = True
    origins: tuple[Path, ...] = ()

    def dtypes_on(self, kind: str) -> tuple[str, ...]:
        """What it takes on devices of a kind, cpu or cuda."""
        return self.dtypes_for.get(kind, self.dtypes)


@dataclass(frozen=True)
class Draws:
    """What is random in a variant, and when it is drawn again.

    `sample(generator, heads, key_width)` gives the tensor that forms receive as `draws`. With `redraw` "step" training
    draws anew at each step and evaluation keeps one draw; with "never" one draw serves throughout.
    """

    sample: Callable[[torch.Generator, int, int], Tensor]
    redraw: Literal["step", "never"] = "step"


def _no_limit(key_width: int) -> None:
    return None


@dataclass(frozen=True)
class Variant:
    """A complete attention mechanism under one name.

    `state_floats(K, V, T)` is the size of the memory of one head after T tokens. `readout(q, k, beta, draws=None)`, where
    one exists, gives the weights [B,N,H,T] that N queries [B,N,H,K], asked after all T writes, put on the written values.
    `denominators`, with the same arguments, gives what those weights were divided by, [B,N,H], before an epsilon is added;
    None where nothing is divided. `write(k, v, beta, draws=None)` gives the memory that all T writes leave, in their order
    and from nothing, and `read(q, memory, draws=None)` what N queries [B,N,H,K] read in it, [B,N,H,V]: what the weights of
    `readout` give, without forming them. `features(k, draws=None)` gives phi(k) [B,T,H,D], None where there is no feature map.
    `check(K)` raises BadParameter where the variant is not defined at that key width. `deviations` names checks that do
    not apply, each with its reason. `origins` are the files whose code makes up the variant.

    `build(width, heads, layers, generator)` makes a variant a whole layer: it gives the modules of all layers of a model,
    which may share parameters, and `inputs` is ("x",). With `has_positions` the variant tells positions apart by itself,
    and a model adds none. `keep(memory, n)`, for a memory that grows with the text, is what the last n tokens left of it.
    """

    name: str
    formula: str
    source: str
    forms: Mapping[str, Form]
    state_floats: Callable[[int, int, int], int]
    inputs: tuple[str, ...] = ("q", "k", "v")
    draws: Draws | None = None
    readout: Callable[..., Tensor] | None = None
    denominators: Callable[..., Tensor] | None = None
    write: Callable[..., Memory] | None = None
    read: Callable[..., Tensor] | None = None
    features: Callable[..., Tensor] | None = None
    feature_width: Callable[[int], int] | None = None
    check: Callable[[int], None] = _no_limit
    deviations: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[Path, ...] = ()
    build: Callable[[int, int, int, torch.Generator], Sequence[nn.Module]] | None = None
    has_positions: bool = False
    keep: Callable[[Memory, int], Memory] | None = None

    def __post_init__(self) -> None:
        """Refuse a description that lacks something or contradicts itself. Raises BadVariant."""
        if "recurrent" not in self.forms:
            raise BadVariant(
                f"variant '{self.name}' needs a form 'recurrent', the oracle for all others; got {sorted(self.forms)}."
            )
        self._check_inputs()
        for form, declared in self.forms.items():
            if not isinstance(declared, Form) or declared.cost not in ("linear", "quadratic"):
                raise BadVariant(
                    f"form '{form}' of variant '{self.name}' must be a Form with cost 'linear' or 'quadratic', got {declared!r}."
                )

    @property
    def is_layer(self) -> bool:
        """Whether the variant is a whole layer, with parameters of its own."""
        return self.build is not None

    def apply(
        self,
        form: str,
        q: Queries,
        k: Keys,
        v: Values,
        beta: Betas | None = None,
        memory: Memory | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        """Values [B,T,H,V] and memory of `form`, handed only the inputs that the variant names.

        Raises Unsupported where the form was not made for this device, dtype or number of tokens, and for a whole layer.
        """
        if self.is_layer:
            raise Unsupported(f"{self.name} is a whole layer and takes no q, k and v.")
        chosen = self._form_for(form, v)
        given = {"q": q, "k": k, "v": v, "beta": beta}
        extra = {} if self.draws is None else {"draws": draws}
        return chosen.call(**{name: given[name] for name in self.inputs}, memory=memory, **extra)

    def apply_layer(
        self, form: str, layer: nn.Module, x: Hidden, memory: Memory | None = None
    ) -> tuple[Tensor, Memory]:
        """Hidden states [B,T,width] and memory of `form`, with one of the modules that `build` gave.

        Raises Unsupported as `apply` does, and for a variant that is no layer.
        """
        if not self.is_layer:
            raise Unsupported(f"{self.name} is no layer of its own and takes {', '.join(self.inputs)}.")
        return self._form_for(form, x).call(layer, x, memory)

    def written(self, k: Keys, v: Values, beta: Betas | None = None, draws: Tensor | None = None) -> Memory:
        """The memory that all writes leave, nothing read on the way. Raises Unsupported for a variant without `write`."""
        if self.write is None:
            raise Unsupported(f"{self.name} has no way to write a whole text before it is read.")
        return self.write(k, v, beta if "beta" in self.inputs else None, draws=draws)

    def asked(self, q: Queries, memory: Memory, draws: Tensor | None = None) -> Tensor:
        """What queries [B,N,H,K] read in a memory as it is, [B,N,H,V]. Raises Unsupported for a variant without `read`."""
        if self.read is None:
            raise Unsupported(f"{self.name} has no way to read without writing.")
        return self.read(q, memory, draws=draws)

    def form(self, form: str) -> Form:
        """The form called `form`. Raises Unsupported, naming those that exist."""
        if form not in self.forms:
            raise Unsupported(f"{self.name} has no form '{form}'; it has {', '.join(self.forms)}.")
        return self.forms[form]

    def seen_in_place_of(self, form: str) -> str:
        """The form itself where torch sees its work, else the first in the order of the variant that it sees."""
        if form not in self.forms or self.forms[form].counts_work:
            return form
        return next((name for name, other in self.forms.items() if other.counts_work and not other.tokens), form)

    def _form_for(self, form: str, tokens: Tensor) -> Form:
        """The form called `form`, where it was made for tokens [B,T,...] like these. Raises Unsupported."""
        chosen = self.form(form)
        kind, dtype = tokens.device.type, str(tokens.dtype).removeprefix("torch.")
        if kind not in chosen.devices:
            # tensors without contents may stand for those of a device that is not here
            if has_contents(tokens):
                raise Unsupported(f"{self.name}/{form} needs {' or '.join(chosen.devices)}; this device is {kind}.")
            kind = chosen.devices[0]
        if dtype not in chosen.dtypes_on(kind):
            takes = ", ".join(chosen.dtypes_on(kind))
            raise Unsupported(f"{self.name}/{form} takes {takes}; these inputs are {dtype}.")
        if chosen.tokens and tokens.shape[1] != chosen.tokens:
            raise Unsupported(
                f"{self.name}/{form} takes {chosen.tokens} token at a time; these inputs have {tokens.shape[1]}."
            )
        return chosen

    def _check_inputs(self) -> None:
        """Refuse inputs that are not those of a variant of this kind. Raises BadVariant."""
        if self.is_layer:
            if self.inputs != LAYER_INPUTS:
                raise BadVariant(
                    f"variant '{self.name}' builds a whole layer, whose one input is x; got {', '.join(self.inputs)}."
                )
            if meaningless := [name for name in NOT_OF_LAYERS if getattr(self, name) is not None]:
                raise BadVariant(f"variant '{self.name}' is a whole layer and has no {', '.join(meaningless)}.")
        elif set(LAYER_INPUTS) & set(self.inputs):
            raise BadVariant(f"variant '{self.name}' takes x, the input of a whole layer, and needs a `build`.")
        elif unknown := sorted(set(self.inputs) - set(INPUTS)):
            raise BadVariant(f"variant '{self.name}' names inputs {unknown}; the inputs are {', '.join(INPUTS)}.")


@dataclass(frozen=True)
class Letter:
    """One number in a feature map's name, such as the `m` of `performer-m64`.

    `limit(K)` is its largest value, 0 for none, and `reason` says why; `example` stands in hints.
    """

    name: str
    meaning: str
    example: int = 1
    limit: Callable[[int], int] = lambda key_width: 0
    reason: str = ""


@dataclass(frozen=True)
class FeatureMap:
    """phi: [..., K] -> [..., D], applied to queries and keys alike.

    `base` is the variant name that the map has with the sum rule (empty: none). Each callable takes the numbers of the
    name as keywords (`nu=2`). `log_features` gives ln phi for maps that can be stabilised by a maximum (`+scaled`).
    `kernel(q, k)` gives phi(q) . phi(k) [B,N,H,T] where that is cheaper than the features themselves.
    """

    name: str
    base: str
    formula: str
    source: str
    features: Callable[..., Tensor]
    width: Callable[..., int]
    is_nonnegative: bool
    letters: tuple[Letter, ...] = ()
    sample: Callable[..., Tensor] | None = None
    log_features: Callable[..., Tensor] | None = None
    kernel: Callable[..., Tensor] | None = None
    options: tuple[str, ...] = ()

    def check(self, key_width: int, numbers: Mapping[str, int]) -> None:
        """Refuse numbers that the map is not defined for at this key width (0: any). Raises BadParameter."""
        for letter in self.letters:
            value = numbers[letter.name]
            limit = letter.limit(key_width) if key_width else 0
            if value < 1:
                raise BadParameter(
                    f"{self.base} needs {letter.name} ({letter.meaning}) from 1 up, got {letter.name}={value}. Use '{self.base}-{letter.name}1'."
                )
            if key_width and limit < 1 and letter.reason:
                raise BadParameter(f"{self.base} needs a key width of at least 2, got K={key_width}.")
            if limit and value > limit:
                raise BadParameter(
                    f"{self.base} needs {letter.name} from 1 to {limit} at K={key_width} ({letter.reason}), got "
                    f"{letter.name}={value}. Use '{self.base}-{letter.name}{limit}'."
                )


@dataclass(frozen=True)
class Normalisation:
    """Where a division happens. `modifier` is its spelling in names (`+attnnorm`, `+nosumnorm`).

    A normalisation with `features` divides each feature vector by its own size; one without is the attention
    normalisation, which divides what is read by z . phi(q) and is done by the write rule.
    """

    name: str
    modifier: str
    formula: str
    source: str
    features: Callable[[Tensor], Tensor] | None = None
    needs_nonnegative: bool = True


@dataclass(frozen=True)
class How:
    """How a write rule is to be carried out.

    `decay` [B,T,H] is the logarithm of a factor on the memory before each write. With `attention`, what is read is
    divided by z . phi(q). `options` are modifiers of the name.
    """

    attention: bool = False
    options: frozenset[str] = frozenset()
    decay: Tensor | None = None


# what a form of a write rule calls, on features: (q, k, v, beta, memory, how) -> (values, memory)
RuleForm = Callable[[Tensor, Tensor, Tensor, Tensor | None, Memory | None, How], tuple[Tensor, Memory]]
# phi of raw queries or keys [B,T,H,K] -> [B,T,H,D], each token for itself
Phi = Callable[[Tensor], Tensor]
# the same on raw queries and keys, with the features as a function: (phi, q, k, v, beta, memory, how) -> (values, memory)
ChunkedForm = Callable[[Phi, Tensor, Tensor, Tensor, Tensor | None, Memory | None, How], tuple[Tensor, Memory]]


@dataclass(frozen=True)
class WriteRule:
    """How a key and a value change the memory, and how it is read.

    `bare` is the feature map that the rule's own name stands for (`delta` is elu1 with the delta rule). `normalisations`
    are the default ones, `allows` all that it can take. Each of `forms` calls a RuleForm; composing it with a feature map
    keeps the devices and dtypes that it declares. `in_chunks` stands in for form `chunkwise` where each token's features hang
    on that token alone, and makes them a chunk at a time. `whole_forms` work on raw queries and keys.
    `state_floats(D, V, T, attention)`. `write(k, v, beta, how)` and `read(q, memory, how)` are those of a variant, on features;
    a rule with `whole_forms` has them on raw inputs, as a variant does.
    `accepts_decay` says whether the memory can be rescaled before a write. `options` are modifiers of this rule. `keep` is
    that of a variant.
    """

    name: str
    formula: str
    source: str
    bare: str
    inputs: tuple[str, ...]
    forms: Mapping[str, Form]
    state_floats: Callable[[int, int, int, bool], int]
    normalisations: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()
    accepts_decay: bool = False
    readout: Callable[..., Tensor] | None = None
    in_chunks: ChunkedForm | None = None
    write: Callable[..., Memory] | None = None
    read: Callable[..., Tensor] | None = None
    whole_forms: Mapping[str, Form] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    keep: Callable[[Memory, int], Memory] | None = None


@dataclass(frozen=True)
class Composition:
    """A feature map with its numbers, a write rule, the normalisations and the options: what a name stands for."""

    feature_map: str
    write_rule: str
    numbers: tuple[tuple[str, int], ...] = ()
    normalisations: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Named:
    """A composition under a name of its own, for a file that exports it as its VARIANT."""

    name: str
    composition: Composition
    formula: str
    source: str


@dataclass(frozen=True)
class Fused:
    """Forms that were made for several parts at once, such as a kernel that computes features and memory together.

    `forms(parts)` gives those that serve a composition of these parts (`attnbench.variants.compose.Parts`) by their names;
    none where it is not served. Each says in its `origins` where it comes from.
    """

    name: str
    forms: Callable[..., Mapping[str, Form]]


def has_contents(x: Tensor) -> bool:
    """Whether a tensor holds numbers; False for one of sizes only, which memory is predicted with."""
    from torch._subclasses.fake_tensor import FakeTensor  # takes a while, and hardly anybody asks

    return not isinstance(x, FakeTensor)


def working_dtype(x: Tensor) -> torch.dtype:
    """The dtype that state and normalisers are kept in: float64 for float64 inputs, float32 for all others."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
