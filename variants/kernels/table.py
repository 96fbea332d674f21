"""Which shapes the kernels take, and how they are cut into blocks. Fixed, so that nothing is searched at a start.

    map                 dtype               K up to   V up to   D up to   tokens a chunk
    elu1, identity      float32                 128        64       128         16
                        bfloat16, float16       128       128       128         32, from K or V = 65 on 16
    dpfp                float32                  64        64       512         16
                        bfloat16, float16        64        64       512         32
    favor               all of them              64        64       512         16

With these blocks no kernel that `attnbench kernels` compiles for sm_80 and sm_90 spills registers or needs more than 99 KiB
of shared memory, by the compiler of Triton 3.7; that of 3.6 spills a few bytes in the largest shapes in float32. What is
wider would spill in the gradient of the inputs, which keeps whole rows of V values, for dpfp and favor of K columns too.
"""

from dataclasses import dataclass
from typing import Any

import torch

from attnbench.variants.errors import Unsupported

LARGEST_FEATURES = 512
# K and V, each also beside the largest of the other
LARGEST_HEAD = {"elu1": (128, 128), "identity": (128, 128), "dpfp": (64, 64), "favor": (64, 64)}
LARGEST_SINGLE_VALUES = 64


@dataclass(frozen=True)
class Blocks:
    """How one shape is cut: tokens a chunk, and the blocks of keys, features and values.

    `state_features` and `state_values` are those of the kernels that carry a state from chunk to chunk in registers;
    `columns` and `all_values` those of the kernel that works back to the inputs.
    """

    tokens: int
    keys: int
    features: int
    values: int
    state_features: int
    state_values: int
    columns: int
    all_values: int
    warps: int = 4
    gradient_warps: int = 8
    stages: int = 1

    def operand(self, dtype: torch.dtype) -> Any:
        """The type of the factors of products."""
        import triton.language as tl  # part of the extra `cuda`

        return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype]


def blocks_for(feature_map: str, key_width: int, width: int, value_width: int, dtype: torch.dtype) -> Blocks:
    """The blocks of a shape. Raises Unsupported for one that is not in the table."""
    is_single = dtype == torch.float32
    largest_key, largest_value = LARGEST_HEAD[feature_map]
    if is_single:
        largest_value = min(largest_value, LARGEST_SINGLE_VALUES)
    if key_width > largest_key or value_width > largest_value or width > LARGEST_FEATURES:
        raise Unsupported(
            f"the kernels take, with {feature_map} features in {str(dtype).removeprefix('torch.')}, K up to {largest_key}, "
            f"V up to {largest_value} and D up to {LARGEST_FEATURES} (the table in variants/kernels/table.py); "
            f"here K={key_width}, V={value_width}, D={width}."
        )
    keys, features, values = power(key_width), power(width), power(value_width)
    if feature_map == "favor":
        return Blocks(
            tokens=16,
            keys=keys,
            features=min(features, 16),
            values=min(values, 32),
            state_features=min(features, 16),
            state_values=min(values, 16 if is_single else 32),
            columns=min(features, 16 if is_single else 32),
            all_values=values,
        )
    # a feature of dpfp is two loads, whose addresses need registers too
    largest_features = 32 if feature_map == "dpfp" or (is_single and keys > 64) else 64
    return Blocks(
        tokens=16 if is_single or max(keys, values) > 64 else 32,
        keys=keys,
        features=min(features, largest_features),
        values=min(values, 64),
        state_features=min(features, 32 if keys > 64 else largest_features),
        state_values=min(values, 32 if is_single else 64),
        columns=min(features, 32 if keys > 64 else 64),
        all_values=values,
    )


def power(width: int) -> int:
    """The smallest power of two from 16 up that holds `width`."""
    return max(16, 1 << (width - 1).bit_length())
