"""A feature map, a write rule and normalisations made into one variant with all its forms.

    raw q, k  ->  phi(q), phi(k)  ->  divided by their own size  ->  the write rule's form

State, features and normalisers are float32 under bfloat16 inputs; what is read goes back to the dtype of v.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbench.variants.contract import (
    ChunkedForm,
    Composition,
    Draws,
    FeatureMap,
    How,
    Memory,
    Normalisation,
    RuleForm,
    Variant,
    WriteRule,
    working_dtype,
)
from attnbench.variants.errors import BadParameter


@dataclass(frozen=True)
class Parts:
    """What a composition is made of."""

    feature_map: FeatureMap
    write_rule: WriteRule
    normalisations: tuple[Normalisation, ...]
    numbers: Mapping[str, int]
    options: frozenset[str]

    @property
    def divides_features(self) -> tuple[Normalisation, ...]:
        """The normalisations that work on feature vectors."""
        return tuple(norm for norm in self.normalisations if norm.features is not None)

    @property
    def attention(self) -> bool:
        """Whether what is read is divided by z . phi(q)."""
        return any(norm.features is None for norm in self.normalisations)

    @property
    def has_level(self) -> bool:
        """Whether the memory carries a running maximum.

        A maximum of a key's own cancels where each feature vector is divided by its own size, and needs no memory.
        """
        return "scaled" in self.options and not self.divides_features


def check(parts: Parts) -> None:
    """Refuse combinations that the mathematics does not allow. Raises BadParameter."""
    rule, feature_map = parts.write_rule, parts.feature_map
    if rule.maps and feature_map.name not in rule.maps:
        raise BadParameter(
            f"the {rule.name} rule works on {', '.join(rule.maps)} features only, got {feature_map.name}."
        )
    for norm in parts.normalisations:
        if norm.name not in rule.allows:
            allowed = ", ".join(rule.allows) or "none"
            raise BadParameter(
                f"the {rule.name} rule takes no {norm.name} normalisation (+{norm.modifier}). Allowed: {allowed}."
            )
        if norm.needs_nonnegative and not feature_map.is_nonnegative:
            raise BadParameter(
                f"{norm.name} normalisation (+{norm.modifier}) needs features of one sign; {feature_map.name} has both."
            )
    if len(parts.divides_features) > 1:
        both = " and ".join("+" + norm.modifier for norm in parts.divides_features)
        raise BadParameter(f"features can be divided by one size only, got {both}.")
    if parts.has_level and not (rule.accepts_decay and parts.attention):
        raise BadParameter(
            f"+scaled moves the scale of the features, which the {rule.name} rule cannot follow without a division of features."
            if not rule.accepts_decay
            else f"+scaled moves the scale of the features, so the {rule.name} rule needs a normalisation that removes it; got none."
        )
    feature_map.check(0, parts.numbers)


def compose(name: str, composition: Composition, parts: Parts, *, formula: str = "", source: str = "") -> Variant:
    """The variant `name` with every form that the write rule has. Raises BadParameter."""
    check(parts)
    rule, feature_map = parts.write_rule, parts.feature_map
    is_random = feature_map.sample is not None
    forms = {name: replace(form, call=_whole(form.call, parts)) for name, form in rule.forms.items()}
    if rule.in_chunks is not None and not parts.has_level:
        forms["chunkwise"] = replace(forms["chunkwise"], call=_in_chunks(rule.in_chunks, parts))
    return Variant(
        name=name,
        formula=formula or f"{rule.formula}; {feature_map.formula}",
        source=source or (rule.source if rule.source == feature_map.source else f"{rule.source}; {feature_map.source}"),
        forms={**rule.whole_forms, **forms},
        state_floats=lambda K, V, T: (
            rule.state_floats(feature_map.width(K, **parts.numbers), V, T, parts.attention) + int(parts.has_level)
        ),
        inputs=tuple(one for one in rule.inputs if not (one == "beta" and "fixedbeta" in parts.options)),
        draws=Draws(_sampler(parts), redraw="never" if "fixeddraws" in parts.options else "step")
        if is_random
        else None,
        readout=_readout(parts) if rule.forms and rule.readout is not None else rule.readout,
        write=_write(parts) if rule.forms and rule.write is not None else rule.write,
        read=_read(parts) if rule.forms and rule.read is not None else rule.read,
        denominators=_denominators(parts) if rule.accepts_decay and parts.attention else None,
        features=None if rule.whole_forms else lambda k, draws=None: features_of(k, k, None, draws, parts)[1],
        feature_width=None if rule.whole_forms else lambda K: feature_map.width(K, **parts.numbers),
        check=lambda key_width: feature_map.check(key_width, parts.numbers),
        keep=rule.keep,
    )


def _sampler(parts: Parts) -> Callable[[torch.Generator, int, int], Tensor]:
    sample = parts.feature_map.sample
    assert sample is not None
    return lambda generator, heads, key_width: sample(generator, heads, key_width, **parts.numbers)


def _whole(call: RuleForm, parts: Parts) -> Callable[..., tuple[Tensor, Memory]]:
    """A form on raw queries and keys from a rule's form on features."""

    def form(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None = None,
        memory: Memory | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        dtype = working_dtype(v)
        level = None if memory is None else memory.get("level")
        q_features, k_features, decay, level = features_of(q.to(dtype), k.to(dtype), level, draws, parts)
        values, written = call(
            q_features,
            k_features,
            v.to(dtype),
            None if beta is None else beta.to(dtype),
            memory,
            How(parts.attention, parts.options, decay),
        )
        return values.to(v.dtype), written if level is None else {**written, "level": level}

    return form


def _in_chunks(call: ChunkedForm, parts: Parts) -> Callable[..., tuple[Tensor, Memory]]:
    """A form on raw queries and keys that makes their features itself."""

    def form(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None = None,
        memory: Memory | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        def phi(x: Tensor) -> Tensor:
            # a map without draws takes any axes before the last: those in the order of memory spare a copy
            if draws is None:
                return _own_features(x.transpose(1, 2), None, parts).transpose(1, 2)
            return _own_features(x, draws, parts)

        return call(phi, q, k, v, beta, memory, How(parts.attention, parts.options))

    return form


def _readout(parts: Parts) -> Callable[..., Tensor]:
    """The readout weights on raw queries and keys."""
    rule, feature_map = parts.write_rule, parts.feature_map
    readout = rule.readout
    assert readout is not None
    # the kernel gives scores of features as they are, and only rules of the sum kind need nothing but scores
    as_they_are = not parts.divides_features and "scaled" not in parts.options
    kernel = feature_map.kernel if rule.accepts_decay and as_they_are else None

    def weights(q: Tensor, k: Tensor, beta: Tensor | None = None, draws: Tensor | None = None) -> Tensor:
        dtype = working_dtype(k)
        q, k, beta = q.to(dtype), k.to(dtype), None if beta is None else beta.to(dtype)
        if kernel is not None:
            scores = kernel(q, k, draws, **parts.numbers)
            return readout(q, k, beta, scores, How(parts.attention))
        q_features, k_features, decay, _ = features_of(q, k, None, draws, parts)
        return readout(q_features, k_features, beta, None, How(parts.attention, decay=decay))

    return weights


def _write(parts: Parts) -> Callable[..., Memory]:
    """Writing on raw keys."""
    write = parts.write_rule.write
    assert write is not None

    def written(k: Tensor, v: Tensor, beta: Tensor | None = None, draws: Tensor | None = None) -> Memory:
        dtype = working_dtype(v)
        k_features, decay, level = _key_features(k.to(dtype), None, draws, parts)
        how = How(parts.attention, parts.options, decay)
        memory = write(k_features, v.to(dtype), None if beta is None else beta.to(dtype), how)
        return memory if level is None else {**memory, "level": level}

    return written


def _read(parts: Parts) -> Callable[..., Tensor]:
    """Reading with raw queries; what is read has their dtype."""
    read = parts.write_rule.read
    assert read is not None

    def asked(q: Tensor, memory: Memory, draws: Tensor | None = None) -> Tensor:
        q_features = _own_features(q.to(working_dtype(q)), draws, parts)
        return read(q_features, memory, How(parts.attention, parts.options)).to(q.dtype)

    return asked


def _denominators(parts: Parts) -> Callable[..., Tensor]:
    """What the readout weights on raw queries and keys are divided by: the weights' sum where nothing is divided."""
    readout = parts.write_rule.readout
    assert readout is not None

    def denominators(q: Tensor, k: Tensor, beta: Tensor | None = None, draws: Tensor | None = None) -> Tensor:
        q_features, k_features, decay, _ = features_of(q, k, None, draws, parts)
        return readout(q_features, k_features, beta, None, How(attention=False, decay=decay)).sum(-1)

    return denominators


def features_of(
    q: Tensor, k: Tensor, level: Tensor | None, draws: Tensor | None, parts: Parts
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """phi(q), phi(k), the decay of the memory and its running maximum (both None unless the features are scaled)."""
    return (_own_features(q, draws, parts), *_key_features(k, level, draws, parts))


def _key_features(
    k: Tensor, level: Tensor | None, draws: Tensor | None, parts: Parts
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """phi(k), the decay of the memory and its running maximum (both None unless the features are scaled)."""
    if not parts.has_level:
        return _own_features(k, draws, parts), None, None
    log_k = _scaled_log_features(k, draws, parts)
    own = log_k.amax(-1)  # B T H
    before = own[:, :1] if level is None else level.unsqueeze(1)
    levels = torch.cat([before, own], dim=1).cummax(dim=1).values
    k_features = torch.exp(log_k - levels[:, 1:].unsqueeze(-1))
    return k_features, levels[:, :-1] - levels[:, 1:], levels[:, -1]


def _own_features(x: Tensor, draws: Tensor | None, parts: Parts) -> Tensor:
    """phi [B,T,H,D] of queries or keys, each by itself: scaled ones with their own maximum subtracted."""
    if "scaled" in parts.options:
        logarithms = _scaled_log_features(x, draws, parts)
        features = torch.exp(logarithms - logarithms.amax(-1, keepdim=True))
    else:
        features = parts.feature_map.features(x, draws, **parts.numbers)
    for norm in parts.divides_features:
        assert norm.features is not None
        features = norm.features(features)
    return features


def _scaled_log_features(x: Tensor, draws: Tensor | None, parts: Parts) -> Tensor:
    log_features = parts.feature_map.log_features
    assert log_features is not None
    return log_features(x * x.shape[-1] ** -0.25, draws, **parts.numbers)
