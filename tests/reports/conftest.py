"""Rows made up for tests: no case was run for them. The numbers are round, so that a reader can check by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from claimed import LOSS

from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Point
from attnbench.reports.agreement import LOGGED

_ids = count(1)
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def attempt(
    suite: str,
    variant: str,
    point: Point,
    numbers: dict[str, float | Sequence[float]] | None = None,
    *,
    seed: int = 0,
    form: str = "chunkwise",
    scale: str = "quick",
    device: str = "cpu",
    threads: int = 1,
    status: Status = Status.OK,
    reason: str = "",
    testbed: str = "",
    run: str = "run-1",
) -> list[Row]:
    """The rows of one attempt: one a metric, or one without a metric. Several numbers are samples around their median."""
    number = next(_ids)

    def row(metric: str, value: float | None, samples: tuple[float, ...]) -> Row:
        known = METRICS.get(metric)
        return Row(
            attempt_id=number,
            run_id=run,
            suite=suite,
            variant=variant,
            form=form,
            point=point,
            seed=seed,
            scale=scale,
            device=device,
            threads=threads,
            status=status,
            reason=reason,
            metric=metric,
            unit=known.unit if known else "",
            better=known.better if known else "",
            value=value,
            samples=samples,
            code_hash="c0de" * 16,
            data_hash="da7a" * 16,
            testbed=testbed,
            seconds=12.5,
            started_at=STARTED,
        )

    rows = []
    for metric, value in (numbers or {}).items():
        if isinstance(value, int | float):
            rows.append(row(metric, float(value), ()))
        else:
            rows.append(row(metric, sorted(value)[len(value) // 2], tuple(map(float, value))))
    return rows or [row("", None, ())]


@dataclass(frozen=True)
class Facts:
    """A suite as the store remembers it."""

    name: str
    axis: str
    metrics: tuple[str, ...]
    title: str = ""
    question: str = "What is asked?"
    source: str = "arXiv:2102.11174"


CAPACITY = Facts(
    "capacity",
    "pairs",
    ("retrieval_loss", "last_retrieval_loss", "retrieval_accuracy", "training_steps", "milliseconds_per_step"),
    "Retrieval capacity",
    "How many pairs fit into a memory of fixed size?",
    "arXiv:2102.11174, section 6.1.1",
)
REWRITE = Facts(
    "rewrite",
    "keys",
    CAPACITY.metrics,
    "Rewriting",
    "Can a stored value be replaced?",
    "arXiv:2102.11174, section 6.1.2",
)
LANGUAGE = Facts(
    "language_modelling",
    "context",
    ("word_perplexity", "bits_per_byte", "token_perplexity", "parameters", "training_tokens_per_second"),
    "Language modelling",
    "What is the perplexity of real text with a limited context?",
    "arXiv:2102.11174, section 6.3",
)
SPEED = Facts(
    "speed",
    "tokens",
    ("training_tokens_per_second", "prefill_tokens_per_second", "decode_tokens_per_second"),
    "Speed",
    "How many tokens per second?",
    "arXiv:2102.11174, section 6.3",
)
MEMORY = Facts(
    "memory",
    "tokens",
    ("training_peak_bytes", "prefill_peak_bytes", "decode_state_bytes"),
    "Memory",
    "How many bytes at the peak?",
    "arXiv:2102.11174, section 6.3",
)
SUITES = (CAPACITY, REWRITE, LANGUAGE, SPEED, MEMORY)


def pairs(number: int, **more: Any) -> Point:
    """A point of the capacity suite."""
    return Point({"pairs": number, "key_width": 64, "batch": 32, **more})


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """What rows are made up with."""
    return SimpleNamespace(
        attempt=attempt,
        pairs=pairs,
        capacity=CAPACITY,
        rewrite=REWRITE,
        language=LANGUAGE,
        speed=SPEED,
        memory=MEMORY,
        suites=SUITES,
    )


@pytest.fixture
def measured(made):
    """Rows of `paper` scale under protocol=code: `measured("linear", {20: 0.1})`; several losses are of seeds 0, 1, ..."""

    def rows(variant, losses, suite="capacity", metric=LOSS, *, scale="paper", seed=None, steps=None, **more):
        settings = {**LOGGED.point, "batch": 32}
        settings |= {name: more.pop(name) for name in list(more) if name in settings}
        axis = {"capacity": "pairs", "rewrite": "keys"}[suite]
        found = []
        for at, values in losses.items():
            for number, value in enumerate(values if isinstance(values, list) else [values]):
                numbers = {metric: value} | ({} if steps is None else {"training_steps": steps})
                point = Point({axis: at, **settings})
                which = number if seed is None else seed
                found += made.attempt(suite, variant, point, numbers, seed=which, scale=scale, **more)
        return found

    return rows
