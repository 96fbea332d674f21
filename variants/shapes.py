"""What variants share: an empty memory, the memory handed on or cut, chunks, decay inside a chunk, and blocks that fit a cache."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attnbench.variants.contract import EPSILON, Memory, working_dtype

CACHED_NUMBERS = 1 << 16


def start(memory: Memory | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """S [B,H,V,D] and z [B,H,D] to begin with: those of `memory`, or zeros. k is [B,T,H,D], v is [B,T,H,V]."""
    batch, _, heads, width = k.shape
    dtype = working_dtype(v)
    if memory is None:
        return k.new_zeros(batch, heads, v.shape[-1], width, dtype=dtype), k.new_zeros(batch, heads, width, dtype=dtype)
    S = memory["S"]
    return S, memory["z"] if "z" in memory else k.new_zeros(batch, heads, width, dtype=dtype)


def carried(S: Tensor, z: Tensor, attention: bool) -> Memory:
    """The memory to hand on: z is part of it only where something is divided by it."""
    return {"S": S, "z": z} if attention else {"S": S}


def asked(q: Tensor, memory: Memory, attention: bool) -> Tensor:
    """What queries [B,N,H,D] read in a memory, S phi(q), [B,N,H,V]; divided by z . phi(q) with attention normalisation."""
    o = torch.einsum("b h v d, b n h d -> b n h v", memory["S"], q)
    if not attention:
        return o
    return o / (torch.einsum("b h d, b n h d -> b n h", memory["z"], q).unsqueeze(-1) + EPSILON)


def last_tokens(memory: Memory, tokens: int) -> Memory:
    """A memory of one entry a token, all tensors [B,P,...], cut down to its last `tokens`."""
    return {name: kept[:, max(kept.shape[1] - tokens, 0) :] for name, kept in memory.items()}


def by_chunk(*tensors: Tensor | None, chunk: int) -> Iterator[tuple[Any, ...]]:
    """The tensors [B,T,H,...] cut along T into at most `chunk` tokens, each as [B,H,C,...]; None stays None.

    Cut by `split`: the backward of indexing writes a tensor of full length for every piece.
    """
    length = next(x.shape[1] for x in tensors if x is not None)
    count = -(-length // chunk)
    pieces: list[Sequence[Any]] = [
        [None] * count if x is None else torch.split(x.transpose(1, 2), chunk, dim=2) for x in tensors
    ]
    yield from zip(*pieces, strict=True)


def cache_blocks(batch: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Slices of the batch whose intermediate tensors, of `numbers` each sequence, fit a processor's cache; on a GPU all at once."""
    size = max(1, CACHED_NUMBERS // numbers) if device.type == "cpu" else batch
    yield from (slice(first, first + size) for first in range(0, batch, size))


def causal_decay(decay: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factors of a chunk from its logarithms [B,H,C]: from token j to i >= j [B,H,C,C], from the start, and to the end [B,H,C]."""
    total = decay.cumsum(-1)
    later = torch.ones(decay.shape[-1], decay.shape[-1], dtype=torch.bool, device=decay.device).tril()
    # masked before exp: above the diagonal the exponent is positive and may overflow
    within = (total[..., :, None] - total[..., None, :]).masked_fill(~later, -torch.inf).exp()
    return within, total.exp(), (total[..., -1:] - total).exp()
