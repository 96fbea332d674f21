"""Finds variants: the files of this folder, a path to a file, and the entry points of installed packages."""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from attnbench.variants import compose as composing
from attnbench.variants.compose import Parts, compose
from attnbench.variants.contract import (
    Composition,
    FeatureMap,
    Fused,
    Named,
    Normalisation,
    Variant,
    WriteRule,
)
from attnbench.variants.errors import BadParameter, BadVariant, UnknownVariant, UserError, did_you_mean
from attnbench.variants.names import PATTERN, Vocabulary, parse, spell

GROUP = "attnbench.variants"
EXPORTS: dict[str, Any] = {
    "FEATURE_MAP": FeatureMap,
    "WRITE_RULE": WriteRule,
    "NORMALISATION": Normalisation,
    "VARIANT": (Variant, Named),
    "FUSED": Fused,
}

# What `attnbench check` proves and `attnbench ls variants` lists when no name is given: each part at least once.
LISTED = (
    "softmax",
    "linear",
    "linear+noattnnorm",
    "performer-m64",
    "performer-m64+scaled",
    "dpfp-nu1",
    "dpfp-nu2",
    "dpfp-nu3",
    "delta",
    "dpfp-nu1+delta",
    "performer-m64+delta",
    "performer-m64+scaled+delta",
    "delta+attnnorm",
    "delta+nosumnorm",
    "delta+l2norm",
    "delta+fixedbeta",
    "fwm",
    "fwm+noreadoutnorm",
    "dpfp-nu1+fwm",
    "fwp1991",
    "gated",
    "xl",
)


@dataclass(frozen=True)
class Found:
    """Everything that files and entry points export, with the file each part came from."""

    vocabulary: Vocabulary
    whole: Mapping[str, Variant | Named]
    fused: Mapping[str, Fused]
    origins: Mapping[str, Path]


def find(name: str) -> Variant:
    """The variant that `name` stands for: a canonical name, or `path/to/file.py:VARIANT`.

    Raises UnknownVariant, BadParameter or BadVariant.
    """
    if ".py:" in name or name.endswith(".py"):
        return from_file(name)
    found = everything()
    if name in found.whole:
        return _finished(found.whole[name], found)
    composition = parse(name, found.vocabulary, found.whole)
    for other, whole in found.whole.items():
        if isinstance(whole, Named) and whole.composition == composition:
            raise UnknownVariant(f"'{name}' is spelled '{other}'.")
    return _composed(name, composition, found)


def listed() -> list[str]:
    """The listed compositions and every variant that a file or package exports whole."""
    return [*LISTED, *sorted(set(everything().whole) - set(LISTED))]


def from_file(address: str) -> Variant:
    """The variant in `path/to/file.py:VARIANT` (the part after the colon may be left out). Raises BadVariant."""
    # folders can have .py in their names too, so the last one counts
    path_text, _, attribute = address.rpartition(".py")
    path = Path(path_text + ".py")
    attribute = attribute.removeprefix(":") or "VARIANT"
    if not path.is_file():
        raise BadVariant(f"no variant file {path}.")
    module = _import_file(path)
    exported = getattr(module, attribute, None)
    if exported is None:
        has = [one for one in dir(module) if isinstance(getattr(module, one), Variant | Named)]
        raise BadVariant(
            f"{path} has no {attribute}; it needs {attribute} = Variant(...)."
            + (f" It has {', '.join(has)}." if has else "")
        )
    if not isinstance(exported, Variant | Named):
        raise BadVariant(f"{attribute} in {path} must be a Variant, got {type(exported).__name__}.")
    _check_name(exported, f"{attribute} in {path}")
    found = everything()
    if exported.name in found.whole or _is_composition(exported.name, found):
        raise BadVariant(f"{attribute} in {path} is called '{exported.name}', which is taken. Give it another name.")
    variant = _finished(exported, found)
    return replace(variant, origins=(*variant.origins, path.resolve()))


@cache
def everything() -> Found:
    """What the files of this folder and the entry points of installed packages export."""
    parts: dict[str, dict[str, object]] = {kind: {} for kind in EXPORTS}
    origins: dict[str, Path] = {}

    def keep(kind: str, exported: object, origin: Path) -> None:
        name = getattr(exported, "name", "")
        if name in parts[kind]:
            raise BadVariant(f"{kind} '{name}' is exported by both {origins[f'{kind} {name}']} and {origin}.")
        parts[kind][name] = exported
        origins[f"{kind} {name}"] = origin

    package = sys.modules[__package__ or "attnbench.variants"]
    for module_info in sorted(pkgutil.iter_modules(package.__path__), key=lambda one: one.name):
        # the machinery of this folder exports no part, and importing this very module again would not end
        if module_info.name in {"registry", "names", "compose", "contract", "errors", "shapes", "kernels", "in_chunks"}:
            continue
        module = _import_dropped_in(f"{package.__name__}.{module_info.name}")
        for kind, exported in _exports(module):
            keep(kind, exported, Path(str(module.__file__)))
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda one: one.name):
        try:
            loaded = entry.load()
        except Exception as problem:
            raise BadVariant(
                f"entry point '{entry.name}' of group {GROUP} ({entry.value}) does not import: {problem}."
            ) from problem
        kinds = [kind for kind, types in EXPORTS.items() if isinstance(loaded, types)]
        if not kinds:
            raise BadVariant(
                f"entry point '{entry.name}' of group {GROUP} ({entry.value}) must name a {', '.join(EXPORTS)}, got {type(loaded).__name__}."
            )
        keep(kinds[0], loaded, Path(str(importlib.import_module(entry.module).__file__)))
    for whole in parts["VARIANT"].values():
        _check_name(whole, "an exported VARIANT")  # type: ignore[arg-type]
    vocabulary = Vocabulary(parts["FEATURE_MAP"], parts["WRITE_RULE"], parts["NORMALISATION"])  # type: ignore[arg-type]
    found = Found(vocabulary, parts["VARIANT"], parts["FUSED"], origins)  # type: ignore[arg-type]
    for name in found.whole:
        if _is_composition(name, found):
            raise BadVariant(
                f"the VARIANT in {origins[f'VARIANT {name}']} is called '{name}', which is taken. Give it another name."
            )
    return found


def _exports(module: ModuleType) -> list[tuple[str, object]]:
    """The one thing that a file of this folder exports. Raises BadVariant for none, several, or the wrong type."""
    exported = [(kind, getattr(module, kind)) for kind in EXPORTS if hasattr(module, kind)]
    if len(exported) != 1:
        got = ", ".join(kind for kind, _ in exported) or "none"
        raise BadVariant(f"{module.__file__} must export one of {', '.join(EXPORTS)}, got {got}.")
    kind, value = exported[0]
    if not isinstance(value, EXPORTS[kind]):
        raise BadVariant(f"{kind} in {module.__file__} has the type {type(value).__name__}.")
    return exported


def _import_dropped_in(name: str) -> ModuleType:
    """A file of this folder. Raises BadVariant with the file's own error."""
    try:
        return importlib.import_module(name)
    except UserError:
        raise
    except Exception as problem:
        raise BadVariant(f"{name} does not import: {type(problem).__name__}: {problem}") from problem


def _import_file(path: Path) -> ModuleType:
    """The module in `path`, imported under a name of its own. Raises BadVariant with the file's own error."""
    name = f"attnbench_variant_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as problem:
        raise BadVariant(f"{path} does not import: {type(problem).__name__}: {problem}") from problem
    return module


def _check_name(exported: Variant | Named, where: str) -> None:
    if not PATTERN.fullmatch(exported.name):
        raise BadVariant(
            f"{where} is called '{exported.name}'; a name is lower-case letters and digits, then -letters<number>, then +modifier."
        )


def _is_composition(name: str, found: Found) -> bool:
    try:
        parse(name, found.vocabulary)
    except (UnknownVariant, BadParameter):
        return False
    return True


def _finished(exported: Variant | Named, found: Found) -> Variant:
    """A whole variant as it stands; a named composition with its forms."""
    origin = found.origins.get(f"VARIANT {exported.name}")
    own = () if origin is None else (origin,)
    if isinstance(exported, Named):
        variant = _composed(
            exported.name, exported.composition, found, formula=exported.formula, source=exported.source
        )
        return replace(variant, origins=(*variant.origins, *own))
    return replace(exported, origins=(*exported.origins, *own))


def _composed(name: str, composition: Composition, found: Found, *, formula: str = "", source: str = "") -> Variant:
    words = found.vocabulary
    for kind, needed, known in (
        ("feature map", composition.feature_map, words.feature_maps),
        ("write rule", composition.write_rule, words.write_rules),
        *(("normalisation", one, words.normalisations) for one in composition.normalisations),
    ):
        if needed not in known:
            raise BadVariant(f"variant '{name}': no {kind} '{needed}'. {did_you_mean(needed, known)}")
    parts = Parts(
        feature_map=words.feature_maps[composition.feature_map],
        write_rule=words.write_rules[composition.write_rule],
        normalisations=tuple(words.normalisations[one] for one in sorted(composition.normalisations)),
        numbers=dict(composition.numbers),
        options=composition.options,
    )
    origins = (
        Path(str(composing.__file__)),
        found.origins[f"FEATURE_MAP {composition.feature_map}"],
        found.origins[f"WRITE_RULE {composition.write_rule}"],
        *(found.origins[f"NORMALISATION {one}"] for one in sorted(composition.normalisations)),
    )
    variant = compose(name, composition, parts, formula=formula, source=source)
    forms = dict(variant.forms)
    for fused in found.fused.values():
        for form, made in fused.forms(parts).items():
            if form in forms:
                raise BadVariant(
                    f"variant '{name}' has a form '{form}' already; FUSED '{fused.name}' gives it another."
                )
            forms[form] = made
    return replace(variant, forms=forms, origins=origins)


def spelled(composition: Composition) -> str:
    """The canonical name of a composition of the known parts."""
    return spell(composition, everything().vocabulary)
