"""`attnbench check`: every check of every form, one line each."""

from collections import Counter
from collections.abc import Sequence

import torch
from rich.console import Console

from attnbench.harness.checks import check
from attnbench.harness.errors import Unsupported, UserError
from attnbench.harness.plan import check_device
from attnbench.variants.registry import find, listed

STYLES = {"passed": "green", "failed": "bold red", "declared": "yellow", "skipped": "dim"}


def check_variants(names: Sequence[str], forms: Sequence[str], device: str) -> int:
    """Check the variants and print what was found; 1 if a check failed, else 0. Raises a UserError for a mistake."""
    check_device(device)
    variants = [find(name) for name in names or listed()]
    for variant in variants:
        for form in forms:
            try:
                variant.form(form)
            except Unsupported as problem:
                raise UserError(str(problem)) from problem
    torch.set_num_threads(1)
    console = Console()
    counts: Counter[str] = Counter()
    for variant in variants:
        for finding in check(variant, device=device, forms=list(forms) or None):
            counts[finding.state] += 1
            console.print(
                f"{finding.state:<8} {finding.subject} {finding.check}"
                + (f": {finding.detail}" if finding.detail else ""),
                style=STYLES[finding.state],
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
    total = sum(counts.values())
    said = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    plural = "" if len(variants) == 1 else "s"
    console.print(f"{total} checks of {len(variants)} variant{plural}: {said}", highlight=False)
    return 1 if counts["failed"] else 0
