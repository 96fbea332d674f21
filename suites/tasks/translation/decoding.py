"""Source lines translated by beam search, with the variant's own memory carried from token to token."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from attnbench.harness.data.pairs import Lines
from attnbench.harness.data.tokenisers import END_OF_LINE
from attnbench.harness.models import Memories, Translator, TranslatorDraws
from attnbench.harness.models.beam import Going, Hypothesis, search
from attnbench.suites.tasks.translation.batches import filled
from attnbench.variants.contract import Memory

# hypotheses that are gone on with together
ROWS_AT_ONCE = {"cpu": 256, "cuda": 2048}


@dataclass(frozen=True)
class Translated:
    """The best hypothesis of each line, the seconds for all of them, and the bytes of the decoder's own memory of one
    hypothesis after 1, 2, ... tokens.
    """

    hypotheses: tuple[Hypothesis, ...]
    seconds: float
    state_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Remembered:
    """What goes along: the source memory of each layer, a row a source, and the target's, a row a hypothesis."""

    source: Memories
    target: Memories | None = None


def longest_translation(source_tokens: int) -> int:
    """How many tokens a translation may have: half again as many as its source, and ten."""
    return source_tokens * 3 // 2 + 10


def going(model: Translator, draws: TranslatorDraws) -> Going[Remembered]:
    """The model as a search goes on with it."""

    def step(tokens: Tensor, state: Remembered, place: int) -> tuple[Tensor, Remembered]:
        hidden, target = model.read_on(tokens.unsqueeze(1), state.source, draws, state.target, place, "step")
        return model.words.log_probabilities(hidden[:, 0]).float(), replace(state, target=target)

    def kept(state: Remembered, rows: Tensor, sources: Tensor | None) -> Remembered:
        assert state.target is not None
        source = state.source if sources is None else _rows(state.source, sources)
        return Remembered(source, _rows(state.target, rows))

    return Going(step, kept)


def translate(
    model: Translator,
    lines: Lines,
    draws: TranslatorDraws,
    *,
    beam: int = 1,
    penalty: float = 1.0,
    numbers: Sequence[int] | None = None,
) -> Translated:
    """The best translation of each line, or of those with these numbers, in their order."""
    asked = np.arange(len(lines)) if numbers is None else np.asarray(numbers)
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    at_once = max(1, ROWS_AT_ONCE[device.type] // beam)
    found: dict[int, Hypothesis] = {}
    sizes: list[int] = []
    moving = _measured(going(model, draws), sizes)
    began = time.perf_counter()
    with torch.no_grad():
        for length in np.unique(lines.lengths[asked]):
            alike = asked[lines.lengths[asked] == length]
            for group in np.array_split(alike, -(-len(alike) // at_once)):
                rows, _ = filled(lines, group)
                state = Remembered(model.remember(rows.to(device), draws))
                best = search(
                    moving,
                    state,
                    len(group),
                    begin=END_OF_LINE,
                    end=END_OF_LINE,
                    longest=longest_translation(int(length)),
                    beam=beam,
                    penalty=penalty,
                    device=device,
                )
                found.update(zip(group.tolist(), (hypotheses[0] for hypotheses in best), strict=True))
    seconds = time.perf_counter() - began
    model.train(was_training)
    return Translated(tuple(found[number] for number in asked.tolist()), seconds, tuple(sizes))


def bytes_of(memories: Memories) -> int:
    """Bytes that one row's memories hold."""
    return sum(tensor[0].numel() * tensor.element_size() for memory in memories for tensor in memory.values())


def _measured(model: Going[Remembered], sizes: list[int]) -> Going[Remembered]:
    """The same, noting the bytes of a hypothesis after each place that is reached for the first time."""

    def step(tokens: Tensor, state: Remembered, place: int) -> tuple[Tensor, Remembered]:
        log_probabilities, after = model.step(tokens, state, place)
        if place == len(sizes) and after.target is not None:
            sizes.append(bytes_of(after.target))
        return log_probabilities, after

    return replace(model, step=step)


def _rows(memories: Memories, rows: Tensor) -> list[Memory]:
    return [{name: tensor.index_select(0, rows) for name, tensor in memory.items()} for memory in memories]
