"""One training step of the capacity suite beside the straightforward one: S = 600, d_key = 64, DPFP-3, batch 32, CPU.

    python tests/benchmarks/capacity_step.py

The straightforward step embeds one-hot values, projects [value; key embedding], and builds the S x D memory. Both steps
compute the same loss and gradients (tests/suites/test_associative.py). Rounds alternate between the two; the ratio is
that of the medians, with the range of the ratios of single rounds.
"""

import statistics
import sys
from pathlib import Path

import torch

from attnbench.harness.clock import interleaved
from attnbench.harness.seeds import generator
from attnbench.suites.tasks.associative import READOUT, Retrieval, Sampler, squared_error
from attnbench.variants import find
from attnbench.variants.dpfp import features

sys.path.insert(0, str(Path(__file__).parent.parent / "oracles"))
from straightforward import sum_rule_loss

SYMBOLS, KEY_WIDTH, BATCH, NU, ROUNDS = 600, 64, 32, 3, 15


class Map(torch.nn.Module):
    """DPFP-3 as the project computes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return features(x, nu=NU)


def main() -> None:
    torch.set_num_threads(1)
    model = Retrieval(find(f"dpfp-nu{NU}"), SYMBOLS, KEY_WIDTH, generator("init"))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    sample, data = Sampler(SYMBOLS, SYMBOLS, repeats=False), generator("data")

    def step(loss: torch.Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    def fast() -> None:
        asked = sample(data, BATCH, asks_all=False)
        step(squared_error(model.read(asked, READOUT, None), asked.targets))

    def plain() -> None:
        step(sum_rule_loss(model, sample(data, BATCH, asks_all=False), Map()))

    def failed(name: str, problem: Exception) -> None:
        raise problem

    samples = interleaved(
        {"readout": fast, "straightforward": plain}, torch.device("cpu"), rounds=ROUNDS, failed=failed
    )
    for name, taken in samples.items():
        milliseconds = sorted(1e3 * one for one in taken)
        print(
            f"{name:<16} median {statistics.median(milliseconds):7.1f} ms, {milliseconds[0]:.1f} to {milliseconds[-1]:.1f}, n={len(taken)}"
        )
    ratios = sorted(slow / quick for slow, quick in zip(samples["straightforward"], samples["readout"], strict=True))
    ratio = statistics.median(samples["straightforward"]) / statistics.median(samples["readout"])
    print(
        f"ratio            {ratio:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f} in single rounds), one thread, torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
