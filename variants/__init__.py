"""The mathematics: one short file per mechanism. A file of your own starts with `from attnbench.variants import Form, Variant`.

Names are looked up when they are used, so that importing this package imports no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbench.variants.contract import (
        EPSILON,
        Betas,
        Composition,
        Draws,
        FeatureMap,
        Features,
        Form,
        Fused,
        Hidden,
        Keys,
        Letter,
        Memory,
        Named,
        Normalisation,
        Output,
        Queries,
        Values,
        Variant,
        WriteRule,
        working_dtype,
    )
    from attnbench.variants.errors import Unsupported
    from attnbench.variants.registry import find, listed

_HOMES = {"Unsupported": "errors", "find": "registry", "listed": "registry"}

__all__ = [
    "EPSILON",
    "Betas",
    "Composition",
    "Draws",
    "FeatureMap",
    "Features",
    "Form",
    "Fused",
    "Hidden",
    "Keys",
    "Letter",
    "Memory",
    "Named",
    "Normalisation",
    "Output",
    "Queries",
    "Unsupported",
    "Values",
    "Variant",
    "WriteRule",
    "find",
    "listed",
    "working_dtype",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'contract')}"), name)
