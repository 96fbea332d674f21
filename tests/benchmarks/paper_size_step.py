"""One training step and one evaluation window of each language model of the small paper grid, as published but for its words.

    python tests/benchmarks/paper_size_step.py [VARIANT ...] [--threads N]

The vocabulary has the published 267,735 words, drawn by Zipf's law in place of WikiText-103. A step takes the published
batch of 96 sequences of 256 tokens, in 12 parts; an evaluation scores a context of 256 and the token behind it. Memory is
what tensors hold at most during one part, beyond weights, gradients and the optimiser's state. `delta+nosumnorm`
is published to diverge: where its first loss is not finite it gets no further.
"""

import argparse
import math
import time

import torch

from attnbench.harness.costs import zipf_words
from attnbench.harness.models import Decoder, count_parameters
from attnbench.harness.peak import peak_bytes
from attnbench.harness.plan import preferred_form
from attnbench.harness.seeds import generator
from attnbench.suites import language_modelling, unbounded_context
from attnbench.suites.tasks.language import points
from attnbench.suites.tasks.language.scoring import sliding
from attnbench.variants import find

PARTS = 12
SMALL = points.small(stride=1)
SUITE = language_modelling.SUITE
SCALE = SUITE.scales["paper"]
NAMES = dict.fromkeys((*SCALE.variants, *unbounded_context.SUITE.scales["paper"].variants))
PUBLISHED_TO_DIVERGE = {"delta+nosumnorm"}


def measured(name: str) -> str:
    """A line of the table."""
    variant, shape = find(name), points.shape_of(SMALL)
    form = preferred_form(SUITE, SMALL, variant)
    model = Decoder(variant, form, shape, generator("init"))
    rate, beta2 = SMALL.number("learning_rate"), SMALL.number("beta2")
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, beta2), weight_decay=0)
    batch, context = SMALL.integer("batch"), SMALL.integer("context")
    words = zipf_words(shape.vocabulary, batch * (context + 1))
    words = words[torch.randperm(len(words), generator=generator("words"))].view(batch, context + 1)
    draws = [
        None
        if variant.draws is None
        else variant.draws.sample(generator("draws", layer), shape.heads, shape.head_width)
        for layer in range(shape.layers)
    ]

    def part(rows: torch.Tensor) -> float:
        nats, _ = model.nll(rows[:, :-1], rows[:, 1:], draws=draws)
        loss = nats.mean() / PARTS
        loss.backward()
        return float(loss.detach())

    began = time.perf_counter()
    loss = sum(part(rows) for rows in words.chunk(PARTS))
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), SMALL.number("clip")))
    optimiser.step()
    step = time.perf_counter() - began
    memory = peak_bytes(lambda: part(words[: batch // PARTS]), torch.device("cpu"))
    began = time.perf_counter()
    scored = sliding(model, words.flatten()[: context + 2], context, 1, draws)
    window = (time.perf_counter() - began) / 2
    if name in PUBLISHED_TO_DIVERGE and not math.isfinite(loss):
        return f"| {name} | {form} | {count_parameters(model):,} | not finite | | {step:.1f} | | |"
    assert math.isfinite(loss), f"{name}: the loss is {loss}"
    assert math.isfinite(norm), f"{name}: the norm of the gradients is {norm}"
    assert scored.nats.shape == (context + 1,), f"{name}: {scored.nats.shape}"
    assert scored.nats.isfinite().all(), f"{name}: a token cost what is not finite"
    return (
        f"| {name} | {form} | {count_parameters(model):,} | {loss:.3f} | {scored.mean:.3f} | {step:.1f} | {window:.2f} "
        f"| {memory / 2**20:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("variants", nargs="*", default=list(NAMES))
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print("| variant | form | parameters | loss | after a step, a token | s a step | s a window | MiB a part |")
    print("|---|---|---|---|---|---|---|---|")
    for name in asked.variants:
        print(measured(name), flush=True)


if __name__ == "__main__":
    main()
