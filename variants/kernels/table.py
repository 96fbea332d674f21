"""Which shapes the kernels take, and how they are cut into blocks. Fixed, so that nothing is searched at a start."""

from dataclasses import dataclass
from typing import Any

import torch

from attnbench.variants.errors import Unsupported

LARGEST_HEAD, LARGEST_FEATURES = 128, 512


@dataclass(frozen=True)
class Blocks:
    """How one shape is cut: tokens a chunk, and the block of keys, features and values; `columns` and `all_values` are the
    blocks of the kernel that works back to the inputs.
    """

    tokens: int
    keys: int
    features: int
    values: int
    columns: int
    all_values: int
    warps: int
    gradient_warps: int
    stages: int = 1

    def operand(self, dtype: torch.dtype) -> Any:
        """The type of the factors of products."""
        import triton.language as tl  # part of the extra `cuda`

        return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype]


def blocks_for(feature_map: str, key_width: int, width: int, value_width: int, dtype: torch.dtype) -> Blocks:
    """The blocks of a shape. Raises Unsupported for one that is not in the table."""
    if max(key_width, value_width) > LARGEST_HEAD or width > LARGEST_FEATURES:
        raise Unsupported(
            f"the kernels take K and V up to {LARGEST_HEAD} and D up to {LARGEST_FEATURES}, as variants/kernels/table.py lists; "
            f"here K={key_width}, V={value_width}, D={width}."
        )
    keys, values = power(key_width), power(value_width)
    return Blocks(
        tokens=32 if dtype == torch.float32 else 64,
        keys=keys,
        features=min(power(width), 64),
        values=min(values, 64),
        columns=min(power(width), 64),
        all_values=values,
        warps=4,
        gradient_warps=8,
    )


def power(width: int) -> int:
    """The smallest power of two from 16 up that holds `width`."""
    return max(16, 1 << (width - 1).bit_length())
