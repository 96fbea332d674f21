"""An attention operation on its own: inputs of one shape, and the three ways it is used.

training: forward and backward over T tokens. prefill: forward over T tokens without gradients. decoding: one token after
another, with a memory of T tokens carried.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.harness.errors import BadParameter, Unsupported, did_you_mean
from attnbench.harness.lab import Lab
from attnbench.harness.peak import tensor_bytes
from attnbench.harness.spec import Point
from attnbench.variants.contract import Memory

PHASES = ("training", "prefill", "decoding")
FORMS = ("sdpa", "chunkwise", "gram", "parallel", "recurrent")
DECODED_TOKENS = 16


@dataclass
class Operation:
    """One form at one point, ready to be called. `memory` is what decoding carries.

    `moved_bytes` is what cannot be left out: inputs read once forwards and once backwards, results and gradients written
    once; in decoding the memory read for each token, and written where its size is constant.
    """

    call: Callable[[], object]
    tokens: int
    moved_bytes: int
    memory: Memory | None = None


def operation(lab: Lab) -> Operation:
    """The operation of a case: `call`, the tokens it takes, and where it decodes the memory of the context.

    The point holds phase, tokens (the context), batch, heads and key_width (of values too).
    """
    point, variant, form = lab.case.point, lab.mechanism(), lab.case.form
    phase, tokens = point.text("phase"), point.integer("tokens")
    shape = (point.integer("batch"), tokens, point.integer("heads"), point.integer("key_width"))
    q, k, v = (_inputs(lab, name, *shape) for name in ("q", "k", "v"))
    beta = torch.sigmoid(_inputs(lab, "beta", *shape[:3]))
    draws = lab.draws(shape[2], shape[3])
    taking_part = [q, k, v, beta] if "beta" in variant.inputs else [q, k, v]
    read, written = sum(one.nbytes for one in taking_part), v.nbytes
    if phase == "training":
        for one in taking_part:
            one.requires_grad_()
        direction = _inputs(lab, "direction", *shape)

        def train() -> None:
            values, _ = variant.apply(form, q, k, v, beta, None, draws)
            torch.autograd.grad(values, taking_part, direction)

        # backwards the gradient of the result comes in, and those of the inputs go out
        return Operation(train, shape[0] * tokens, read + written + 2 * read + written)
    if phase == "prefill":

        def prefill() -> None:
            with torch.no_grad():
                variant.apply(form, q, k, v, beta, None, draws)

        return Operation(prefill, shape[0] * tokens, read + written)
    return _decoding(lab, q, k, v, beta, draws, (read + written) // tokens)


def points(*lengths: int, batch: int, heads: int, key_width: int, **more: str) -> tuple[Point, ...]:
    """A point for each phase and length."""
    return tuple(
        Point(phase=phase, tokens=tokens, batch=batch, heads=heads, key_width=key_width, **more)
        for phase in PHASES
        for tokens in lengths
    )


def check(point: Point) -> None:
    """Refuse a phase that there is not. Raises BadParameter."""
    check_phase(point, PHASES)


def check_phase(point: Point, known: tuple[str, ...]) -> None:
    """Refuse a phase that is not one of these. Raises BadParameter."""
    if (phase := point.text("phase")) not in known:
        raise BadParameter(f"no phase '{phase}'. {did_you_mean(phase, known)}")


def forms_of(phase: str) -> tuple[str, ...]:
    """The order in which a form is chosen for a phase."""
    return ("step",) if phase == "decoding" else FORMS


def _decoding(
    lab: Lab, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, draws: Tensor | None, token_bytes: int
) -> Operation:
    """Token after token from a memory of the whole context, which the variant's fastest form has written."""
    variant, form = lab.mechanism(), lab.case.form
    writer = next((name for name in FORMS if name in variant.forms), "")
    if not writer:
        raise Unsupported(f"{variant.name} has no form that writes a context of {q.shape[1]} tokens.")
    with torch.no_grad():
        _, memory = variant.apply(writer, q, k, v, beta, None, draws)
    q_t, k_t, v_t, beta_t = (x[:, :1].contiguous() for x in (q, k, v, beta))

    def decode() -> None:
        carried = memory
        with torch.no_grad():
            for _ in range(DECODED_TOKENS):
                _, carried = variant.apply(form, q_t, k_t, v_t, beta_t, carried, draws)

    # of a memory that grows a token's own row is written, which counts among its inputs
    memory_bytes = tensor_bytes(memory) * (1 if variant.keep is not None else 2)
    return Operation(decode, q.shape[0] * DECODED_TOKENS, DECODED_TOKENS * (memory_bytes + token_bytes), memory)


def _inputs(lab: Lab, name: str, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=lab.generator("inputs", name)).to(lab.device)
