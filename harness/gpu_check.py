"""Every form for a GPU on one: is it right, how fast, how much memory, and how near to what the device could do.

    for each form    checks against the recurrent form, its reason where it cannot run; then, of those that passed,
                     seconds of forward and forward + backward in interleaved rounds, with warm and with cold caches,
                     peak bytes beside those predicted, and the share of the time that bandwidth and arithmetic allow

Needs torch, Triton and jaxtyping; fla-core and xformers have their columns where they are installed. Within a budget of
seconds: what is not reached in time is left out and named. A form with a failed check gets no number.

    python reports/measured/gpu_check --output gpu_check
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnbench.harness import environment, seeds
from attnbench.harness.ceilings import Ceilings, measured_ceilings
from attnbench.harness.checks import TOLERANCES, Finding, check, count
from attnbench.harness.clock import interleaved
from attnbench.harness.costs import counted_flops
from attnbench.harness.errors import Unsupported, UserError
from attnbench.harness.gpu_check_table import markdown
from attnbench.harness.peak import peak_bytes
from attnbench.harness.plan import check_device
from attnbench.harness.predicted import predicted_peak_bytes
from attnbench.variants.contract import Variant
from attnbench.variants.registry import find

# a form for GPUs alone comes to be known here: of each variant these are held against one another
FORMS = {
    "softmax": ("sdpa", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "sdpa-math", "xformers"),
    "linear": ("triton", "chunkwise", "fla-chunk", "fla-recurrent"),
    "delta": ("triton", "chunkwise", "fla-chunk", "fla-recurrent"),
    "dpfp-nu1+delta": ("triton", "chunkwise", "fla-chunk", "fla-recurrent"),
    "performer-m64": ("triton", "chunkwise", "fla-chunk", "fla-recurrent"),
    "delta+l2norm": ("triton",),
    "fwp1991": ("triton",),
}
CHECKS = ("shapes", "equals_recurrent", "causality", "split_and_resume", "determinism", "low_precision")
PASSES = ("forward", "training")
GIVEN_SECONDS = 540.0
Call = Callable[[], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Size:
    """What is timed: batch, tokens, heads and head width, in so many rounds; and what the ceilings are measured with."""

    batch: int
    tokens: int
    heads: int
    width: int
    rounds: int
    matrix: int
    copied_bytes: int
    checks: tuple[str, ...] = CHECKS


SIZE = Size(batch=2, tokens=4096, heads=16, width=64, rounds=15, matrix=8192, copied_bytes=1 << 30)
TINY = Size(
    batch=1, tokens=20, heads=1, width=8, rounds=2, matrix=64, copied_bytes=1 << 16, checks=("shapes", "determinism")
)


@dataclass(frozen=True)
class Times:
    """Median seconds of a call, half the distance between the quartiles, and how many calls it was."""

    median: float
    spread: float
    samples: int


@dataclass(frozen=True)
class Line:
    """A form in a dtype. `checks` says how they ended, `reason` why there is no number; the rest is by pass.

    `difference` is the largest, of values and gradients at the size that is timed, from the chunkwise form (of softmax: torch's
    own choice) in float32 on the same inputs, as a part of the largest element. `roofline` is the share: the time that the bytes of inputs, results and gradients take at the device's bandwidth, or the
    FLOPs at its rate, whichever is longer, over the time with warm caches.
    """

    variant: str
    form: str
    dtype: str
    checks: str
    reason: str = ""
    difference: float | None = None
    warm: dict[str, Times] | None = None
    cold: dict[str, Times] | None = None
    peak: dict[str, int] | None = None
    predicted: dict[str, int] | None = None
    roofline: dict[str, float] | None = None


def main(arguments: Sequence[str]) -> int:
    """Check, measure and write OUTPUT.md and OUTPUT.json; 1 where a check failed, 2 for a mistake in what was asked."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--device", default="cuda", help="cuda, cuda:N, or cpu to see that it runs, at the smallest sizes"
    )
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes on a GPU too; their times mean nothing")
    parser.add_argument("--seconds", type=float, default=GIVEN_SECONDS, help="begin nothing new after so many")
    parser.add_argument("--variant", "-v", action="append", choices=sorted(FORMS), help="only these variants")
    parser.add_argument("--output", "-o", type=Path, default=Path("gpu_check"), help="where to write, without a suffix")
    asked = parser.parse_args(arguments)
    try:
        check_device(asked.device)
        if not asked.output.absolute().parent.is_dir():
            raise UserError(f"no folder {asked.output.parent} to write into. Make it first, or name another.")
    except UserError as problem:
        parser.error(str(problem))
    size = TINY if asked.tiny or asked.device == "cpu" else SIZE
    lines, facts = run(asked.device, size, asked.seconds, asked.variant or list(FORMS))
    text = markdown(facts, lines)
    asked.output.with_suffix(".md").write_text(text, encoding="utf-8")
    told = {"facts": facts, "lines": [asdict(one) for one in lines]}
    asked.output.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(text)  # noqa: T201
    return 1 if any(one.checks.startswith("failed") for one in lines) else 0


def run(device: str, size: Size, given_seconds: float, variants: Sequence[str]) -> tuple[list[Line], dict[str, object]]:
    """The lines, and what they hang on: device, versions, clocks, ceilings, sizes, and what was not reached in time."""
    where, ends = torch.device(device), time.monotonic() + given_seconds
    if where.type == "cuda":
        torch.cuda.set_device(where)
    torch.backends.cuda.matmul.allow_tf32 = False
    facts: dict[str, object] = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": environment.hardware(device),
        "is_gpu": where.type == "cuda",
        **environment.graphics(),
        "versions": environment.versions(),
        "commit": environment.source_state()[0],
        "size": asdict(size),
        "clocks_before": _clocks(),
    }
    dtypes = ("float32", "bfloat16") if where.type == "cuda" else ("float32",)
    ceilings = measured_ceilings(where, dtypes, size.matrix, size.copied_bytes)
    facts["ceilings"] = asdict(ceilings)
    lines: list[Line] = []
    left_out: list[str] = []
    for name in variants:
        variant = find(name)
        judged: list[Line] = []
        for form in FORMS[name]:
            if time.monotonic() > ends:
                left_out.append(f"{name}/{form}")
            else:
                judged.append(_judged(variant, form, device, size))
        for dtype in dtypes:
            of_dtype = [replace(one, dtype=dtype) for one in judged]
            if judged and time.monotonic() > ends:
                left_out += [f"{name} in {dtype}"]
                lines += [replace(one, reason=one.reason or "not reached in time") for one in of_dtype]
                continue
            try:
                lines += list(_measured(variant, of_dtype, where, size, ceilings))
            except Exception as problem:
                # a GPU that a kernel has brought down takes nothing more in this process; what was found before is kept
                said = _told(problem)
                lines += [one if one.reason else replace(one, checks="failed", reason=said) for one in of_dtype]
    facts["clocks_after"] = _clocks()
    facts["left_out"] = left_out
    return lines, facts


def _judged(variant: Variant, form: str, device: str, size: Size) -> Line:
    """How the checks of a form ended."""
    findings = list(check(variant, device=device, forms=[form], names=size.checks))
    failed = [f"{one.check}: {one.detail}" for one in findings if one.state == "failed"]
    counts = count(findings)
    if failed:
        return Line(variant.name, form, "", f"failed {counts['failed']} of {len(findings)}", failed[0])
    if not counts["passed"]:
        return Line(variant.name, form, "", "skipped", findings[0].detail)
    return Line(variant.name, form, "", _passed(findings))


def _passed(findings: Sequence[Finding]) -> str:
    skipped = [one.check for one in findings if one.state == "skipped"]
    return f"passed {len(findings) - len(skipped)}" + (f", skipped {', '.join(skipped)}" if skipped else "")


def _measured(
    variant: Variant, lines: Sequence[Line], device: torch.device, size: Size, ceilings: Ceilings
) -> Iterator[Line]:
    """The lines with their numbers, all forms of a variant in one dtype timed together."""
    reasons = {line.form: line.reason for line in lines if line.reason}
    calls: dict[str, dict[str, Call]] = {one: {} for one in PASSES}
    differences: dict[str, float] = {}
    failed: dict[str, str] = {}
    reference: Call | None = None
    for line in lines:
        takes = variant.forms[line.form].dtypes_on(device.type)
        if line.form not in reasons and line.dtype not in takes:
            reasons[line.form] = f"takes {', '.join(takes)}"
        if line.form in reasons:
            continue
        try:
            for one in PASSES:
                calls[one][line.form] = _call(variant, line.form, line.dtype, one, device, size)
            reference = reference or _call(
                variant, _reference(variant), "float32", "training", device, size, line.dtype
            )
            differences[line.form] = _difference(calls["training"][line.form](), reference())
        except Exception as problem:
            (reasons if isinstance(problem, Unsupported) else failed)[line.form] = _told(problem)
            for by_form in calls.values():
                by_form.pop(line.form, None)
            continue
        allowed = 10 * TOLERANCES[getattr(torch, line.dtype)].relative
        # a NaN is not within anything
        if not differences[line.form] <= allowed:
            failed[line.form] = (
                f"at the size that is timed it differs from {_reference(variant)} in float32 by "
                f"{differences[line.form]:.2g} of the largest element; {allowed:.2g} is allowed"
            )
            for by_form in calls.values():
                del by_form[line.form]
    warm = {one: _timed(calls[one], device, size, failed, is_cold=False) for one in PASSES}
    cold = {one: _timed(calls[one], device, size, failed, is_cold=True) for one in PASSES}
    for line in lines:
        if line.form in failed:
            yield replace(line, checks="failed", reason=failed[line.form], difference=differences.get(line.form))
            continue
        if line.form in reasons:
            yield replace(line, reason=reasons[line.form])
            continue
        bound = {one: _bound(variant, line.dtype, one, size, ceilings) for one in PASSES}
        predicted, lack = _predicted(variant, line, device, size)
        yield replace(
            line,
            reason=lack,
            difference=differences[line.form],
            warm={one: warm[one][line.form] for one in PASSES},
            cold={one: cold[one][line.form] for one in PASSES},
            peak={one: peak_bytes(calls[one][line.form], device) for one in PASSES},
            predicted=predicted,
            roofline={one: bound[one] / warm[one][line.form].median for one in PASSES},
        )


def _timed(
    calls: dict[str, Call], device: torch.device, size: Size, failed: dict[str, str], *, is_cold: bool
) -> dict[str, Times]:
    """Times of each call; with `is_cold` something larger than every cache is written before each."""
    flushed = torch.empty(min(size.copied_bytes, 1 << 28), dtype=torch.uint8, device=device)

    def fail(form: str, problem: Exception) -> None:
        failed[form] = _told(problem)

    before = dict.fromkeys(calls, flushed.zero_) if is_cold else {}
    samples = interleaved(dict(calls), device, rounds=size.rounds, failed=fail, before=before)
    return {form: _times(taken) for form, taken in samples.items()}


def _times(samples: Sequence[float]) -> Times:
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Times(middle, (high - low) / 2, len(samples))


def _reference(variant: Variant) -> str:
    """The form that others are held against at the size that is timed, and whose FLOPs count."""
    return "chunkwise" if "chunkwise" in variant.forms else "sdpa"


def _difference(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest difference as a part of the largest element, over pairs of tensors; NaN where one is in them."""
    parts = [
        float((one.float() - other.float()).abs().max() / other.float().abs().max().clamp_min(1e-30))
        for one, other in zip(found, expected, strict=True)
    ]
    return math.nan if any(math.isnan(part) for part in parts) else max(parts)


def _call(
    variant: Variant, form: str, dtype: str, which: str, device: torch.device, size: Size, rounded_to: str = ""
) -> Call:
    """One operation on random inputs: forward without gradients, or forward and backward. Gives values, and gradients.

    With `rounded_to` the inputs are numbers of that dtype.
    """
    shape = (size.batch, size.tokens, size.heads, size.width)

    def drawn(name: str, *axes: int) -> torch.Tensor:
        numbers = torch.randn(*axes, generator=seeds.generator("gpu_check", name))
        numbers = torch.sigmoid(numbers) if name == "beta" else 0.7 * numbers
        return numbers.to(device, getattr(torch, rounded_to or dtype)).to(getattr(torch, dtype))

    inputs: dict[str, Any] = {name: drawn(name, *shape) for name in ("q", "k", "v")}
    inputs["beta"] = drawn("beta", *shape[:3])
    draws = None
    if variant.draws is not None:
        draws = variant.draws.sample(seeds.generator("gpu_check", "draws"), size.heads, size.width).to(device)
    if which == "forward":

        def forward() -> tuple[torch.Tensor, ...]:
            with torch.no_grad():
                return (variant.apply(form, **inputs, draws=draws)[0],)

        return forward
    leaves = [inputs[name].requires_grad_() for name in variant.inputs]
    direction = drawn("direction", *shape)

    def training() -> tuple[torch.Tensor, ...]:
        values, _ = variant.apply(form, **inputs, draws=draws)
        return (values.detach(), *torch.autograd.grad(values, leaves, direction))

    return training


def _predicted(variant: Variant, line: Line, device: torch.device, size: Size) -> tuple[dict[str, int] | None, str]:
    """Peak bytes by pass, as told from tensors without contents; None with the reason where a kernel takes no such."""
    cpu = torch.device("cpu")
    try:
        with FakeTensorMode():
            calls = {one: _call(variant, line.form, line.dtype, one, cpu, size) for one in PASSES}
            return {one: predicted_peak_bytes(call, device.type) for one, call in calls.items()}, ""
    except Exception as problem:
        return None, f"no prediction: {_told(problem)}"


def _bound(variant: Variant, dtype: str, which: str, size: Size, ceilings: Ceilings) -> float:
    """The seconds that the device would need at its best: for the bytes that must move, or for the FLOPs."""
    with FakeTensorMode():
        flops = counted_flops(_call(variant, _reference(variant), "float32", which, torch.device("cpu"), size))
    numbers = size.batch * size.tokens * size.heads * size.width
    # q, k, v and what is read; backwards these again, the gradient of what is read, and three gradients
    moved = numbers * getattr(torch, dtype).itemsize * (4 if which == "forward" else 4 + 3 + 1 + 3)
    return ceilings.seconds(flops, moved, dtype)


def _clocks() -> str:
    """Clocks and temperature as nvidia-smi tells them; empty where it does not."""
    query = "clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw"
    return environment.told_by("nvidia-smi", f"--query-gpu={query}", "--format=csv")


def _told(problem: Exception) -> str:
    text = (str(problem).strip() or "no message").splitlines()[0]
    return text if isinstance(problem, Unsupported) else f"{type(problem).__name__}: {text}"
