"""Seeds by named parts: every random thing has its own generator, derived from what it is and not from what ran before it."""

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Part = str | int


def seed(*parts: Part) -> int:
    """A number from 0 to 2^63 - 1 that the parts determine: `seed("data", 3, "evaluation", 7)`."""
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: Part, device: str = "cpu") -> "torch.Generator":
    """A fresh torch generator that the parts determine."""
    import torch

    return torch.Generator(device=device).manual_seed(seed(*parts))
