"""Associative retrieval the straightforward way, as an oracle: one-hot values as vectors, an S x D memory, every step as written.

Uses the parameters of a `Retrieval` model, nothing else of it.
"""

import torch
from torch import Tensor, nn

from attnbench.suites.tasks.associative import Retrieval, Sequences
from attnbench.variants.contract import EPSILON


def key_vectors(model: Retrieval, asked: Sequences) -> tuple[Tensor, Tensor]:
    """k [B,T,K] and q [B,N,K], by projecting [one-hot value; key embedding]."""
    one_hot = nn.functional.one_hot(asked.values, model.symbols).to(model.embedding.dtype)
    written = torch.cat([one_hot, model.embedding[asked.keys]], dim=-1)
    k = written @ torch.cat([model.key_of_value, model.key_of_embedding]) + model.key_bias
    q = model.embedding[asked.queries] @ model.query_of_embedding + model.query_bias
    return k, q


def strengths(model: Retrieval, asked: Sequences) -> Tensor:
    """beta [B,T]."""
    one_hot = nn.functional.one_hot(asked.values, model.symbols).to(model.embedding.dtype)
    written = torch.cat([one_hot, model.embedding[asked.keys]], dim=-1)
    return torch.sigmoid(written @ torch.cat([model.beta_of_value, model.beta_of_embedding]) + model.beta_bias)


def loss(answer: Tensor, targets: Tensor, symbols: int) -> Tensor:
    """Half the squared distance to the one-hot target, mean over queries."""
    return 0.5 * (answer - nn.functional.one_hot(targets, symbols)).square().sum(-1).mean()


def sum_rule_loss(model: Retrieval, asked: Sequences, phi: nn.Module) -> Tensor:
    """S = sum_t onehot(v_t) phi(k_t)^T, z = sum_t phi(k_t); read S phi(q) / (z . phi(q))."""
    k, q = key_vectors(model, asked)
    values = nn.functional.one_hot(asked.values, model.symbols).to(k.dtype)
    keys = phi(k)
    memory = torch.einsum("b t v, b t d -> b v d", values, keys)
    total = keys.sum(1)
    queries = phi(q)
    read = torch.einsum("b v d, b n d -> b n v", memory, queries)
    read = read / (torch.einsum("b d, b n d -> b n", total, queries) + EPSILON).unsqueeze(-1)
    return loss(read, asked.targets, model.symbols)


def delta_rule_loss(model: Retrieval, asked: Sequences, phi: nn.Module) -> Tensor:
    """Token by token: read what the key holds, write the correction; features divided by their sum."""
    k, q = key_vectors(model, asked)
    beta = strengths(model, asked)

    def normalised(x: Tensor) -> Tensor:
        return phi(x) / (phi(x).sum(-1, keepdim=True) + EPSILON)

    keys, queries = normalised(k), normalised(q)
    values = nn.functional.one_hot(asked.values, model.symbols).to(k.dtype)
    memory = k.new_zeros(k.shape[0], model.symbols, keys.shape[-1])
    for t in range(k.shape[1]):
        held = torch.einsum("b v d, b d -> b v", memory, keys[:, t])
        correction = beta[:, t, None] * (values[:, t] - held)
        memory = memory + torch.einsum("b v, b d -> b v d", correction, keys[:, t])
    return loss(torch.einsum("b v d, b n d -> b n v", memory, queries), asked.targets, model.symbols)


class ElementwisePlusOne(nn.Module):
    """elu(x) + 1."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.elu(x) + 1


class Products(nn.Module):
    """DPFP, one product at a time by index arithmetic."""

    def __init__(self, nu: int) -> None:
        super().__init__()
        self.nu = nu

    def forward(self, x: Tensor) -> Tensor:
        r = torch.cat([x.clamp(min=0), (-x).clamp(min=0)], dim=-1)
        width = r.shape[-1]
        index = torch.arange(width)
        return torch.cat([r * r[..., (index - shift) % width] for shift in range(1, self.nu + 1)], dim=-1)
