"""The result of a GPU check as Markdown: what it hangs on, and one line for each form and dtype."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbench.harness.gpu_check import Line, Times

NOTHING = "-"
HEADS = (
    *(
        "variant/form",
        "dtype",
        "checks",
        "differs by",
        "forward ms",
        "cold",
        "training ms",
        "cold",
        "peak MiB",
        "predicted",
        "error",
    ),
    *("of roofline: forward", "training"),
)


def markdown(facts: Mapping[str, Any], lines: "Sequence[Line]") -> str:
    """The whole text."""
    size, ceilings = facts["size"], facts["ceilings"]
    rates = ", ".join(f"{rate / 1e12:.3g} TFLOP/s {dtype}" for dtype, rate in ceilings["flops_per_second"].items())
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    text = [
        "# GPU check",
        "",
        f"{facts['device']}, {facts['started_at']}. {versions}."
        + (f" Commit {facts['commit'][:12]}." if facts["commit"] else ""),
        "",
        f"Batch {size['batch']}, {size['tokens']} tokens, {size['heads']} heads of width {size['width']}. Times are medians "
        f"of {size['rounds']} interleaved rounds after warm-up, +- half the distance between the quartiles; `cold` with "
        "caches overwritten before each call. `differs by`: values and gradients at this size, from the chunkwise form (of "
        "softmax: sdpa) in float32, of the largest element. Training is forward and backward. Peaks are of training, inputs not counted, "
        "beside those predicted on tensors without contents. The roofline is the longer of moving inputs, results and "
        "gradients once and the FLOPs of the chunkwise form (of softmax: attention, causal not halved), at these measured "
        "ceilings, which float32 products in tf32 can pass: "
        f"{ceilings['bytes_per_second'] / 1e9:.4g} GB/s copied, {rates}.",
        "",
        *_clocks(facts),
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
        *("| " + " | ".join(_cells(line)) + " |" for line in lines),
    ]
    reasons = dict.fromkeys(
        f"- {line.variant}/{line.form} in {line.dtype}: {line.reason}" for line in lines if line.reason
    )
    if reasons:
        text += ["", "Without a number:", "", *reasons]
    text += ["", _never_run(facts, lines)]
    if facts["left_out"]:
        text += ["", f"Not reached in time: {', '.join(facts['left_out'])}."]
    return "\n".join(text) + "\n"


def _never_run(facts: Mapping[str, Any], lines: "Sequence[Line]") -> str:
    """What this table leaves open about GPUs, in one line."""
    if not facts["is_gpu"]:
        return "Never run on a GPU: all of it. This was a CPU, whose times and peaks say nothing about one."
    lacking = [f"{line.variant}/{line.form} in {line.dtype}" for line in lines if line.warm is None]
    return f"Without a run on this GPU: {', '.join([*lacking, *facts['left_out']]) or 'nothing'}."


def _clocks(facts: Mapping[str, Any]) -> list[str]:
    """What nvidia-smi said before and after, where there is one."""
    told = [f"    {line}" for when in ("clocks_before", "clocks_after") for line in str(facts[when]).splitlines()]
    return ["Clocks before and after:", "", *told, ""] if told else []


def _cells(line: "Line") -> list[str]:
    differs = NOTHING if line.difference is None else f"{line.difference:.1e}"
    named = [f"{line.variant}/{line.form}", line.dtype, line.checks, differs]
    if line.warm is None or line.cold is None or line.peak is None or line.roofline is None:
        return named + [NOTHING] * (len(HEADS) - len(named))
    cells = [
        *named,
        _time(line.warm["forward"]),
        _time(line.cold["forward"]),
        _time(line.warm["training"]),
        _time(line.cold["training"]),
        f"{line.peak['training'] / 2**20:.4g}",
    ]
    if line.predicted is None:
        cells += [NOTHING, NOTHING]
    else:
        predicted, peak = line.predicted["training"], line.peak["training"]
        cells += [f"{predicted / 2**20:.4g}", f"{predicted / peak - 1:+.1%}" if peak else NOTHING]
    return [*cells, *(f"{line.roofline[one]:.1%}" for one in ("forward", "training"))]


def _time(times: "Times") -> str:
    """Milliseconds; a spread of more than a tenth is pointed out."""
    mark = " (wide)" if times.spread > 0.1 * times.median else ""
    return f"{times.median * 1e3:.3g} +- {times.spread * 1e3:.2g}{mark}"
