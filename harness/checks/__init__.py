"""The conformance checks: tests of a variant that nobody had to write.

    for finding in check(find("delta")):
        print(finding)                     delta/chunkwise equals_recurrent passed: largest difference 3.1e-15

`correct` is the short version that stands before every measurement of speed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Literal

from attnbench.harness.checks import agreement, claims, reach
from attnbench.harness.checks.trial import TOLERANCES, Tolerance, Trial, Wrong
from attnbench.variants.contract import Variant
from attnbench.variants.errors import Unsupported

__all__ = ["CHECKS", "TOLERANCES", "Check", "Finding", "State", "Tolerance", "check", "correct", "count"]

State = Literal["passed", "failed", "declared", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What one check found. `form` is empty where the check is about the variant as a whole.

    State "declared": the variant says that the check does not apply, `detail` is its reason. "skipped": the form cannot
    be checked here, `detail` says why.
    """

    variant: str
    form: str
    check: str
    state: State
    detail: str

    @property
    def subject(self) -> str:
        """What was checked: `delta/chunkwise`, or `delta` for the variant as a whole."""
        return f"{self.variant}/{self.form}" if self.form else self.variant

    def __str__(self) -> str:
        """One line."""
        return f"{self.subject} {self.check} {self.state}: {self.detail}"


def _always(trial: Trial) -> bool:
    return True


def _is_oracle(trial: Trial) -> bool:
    return trial.is_oracle


def _is_step(trial: Trial) -> bool:
    return trial.takes_one_token


def _sees_many_tokens(trial: Trial) -> bool:
    return not trial.takes_one_token


def _is_held_against_recurrent(trial: Trial) -> bool:
    return not trial.is_oracle and not trial.takes_one_token


def _has_readout(trial: Trial) -> bool:
    return trial.variant.readout is not None


def _is_read_whole(trial: Trial) -> bool:
    return trial.variant.write is not None and trial.variant.read is not None


def _has_draws(trial: Trial) -> bool:
    return trial.variant.draws is not None


def _cuts_memory(trial: Trial) -> bool:
    return trial.variant.keep is not None


@dataclass(frozen=True)
class Check:
    """One check: what it shows, the judge that returns a detail or raises Wrong, and the forms it is for."""

    shows: str
    judge: Callable[[Trial], str]
    applies: Callable[[Trial], bool] = _always
    is_of_variant: bool = False


CHECKS: Mapping[str, Check] = {
    "shapes": Check("values like v (a layer's: like x), a memory of tensors, all finite", agreement.shapes),
    "equals_recurrent": Check(
        "values, memory and gradients are those of the recurrent form at T = 1, 3, 63, 64, 100",
        agreement.equals_recurrent,
        _is_held_against_recurrent,
    ),
    "gradient": Check("the recurrent form's gradient is that of finite differences", agreement.gradient, _is_oracle),
    "step_equals_full": Check(
        "token by token equals the recurrent form's one pass, gradients included", agreement.step_equals_full, _is_step
    ),
    "causality": Check("later tokens have no influence on earlier values", reach.causality, _sees_many_tokens),
    "split_and_resume": Check(
        "a sequence in pieces, the memory passed on, equals one pass", reach.split_and_resume, _sees_many_tokens
    ),
    "state_size": Check("the declared number of floats is what the memory holds", claims.state_size),
    "cost_class": Check("counted work grows with T as declared", claims.cost_class),
    "independence": Check("batch entries and heads have no influence on one another", reach.independence),
    "determinism": Check("the same inputs give the same bits twice", reach.determinism),
    "inputs_untouched": Check("inputs and incoming memory stay as they were", reach.inputs_untouched),
    "nan_poisoning": Check("uninitialised memory filled with NaN stays invisible", reach.nan_poisoning),
    "low_precision": Check(
        "half-precision inputs give values near float32's, and the state stays in float32", agreement.low_precision
    ),
    "readout": Check(
        "readout weights give what the recurrent form reads", agreement.readout, _has_readout, is_of_variant=True
    ),
    "written_then_read": Check(
        "written whole and then read gives the recurrent form's memory and its last read",
        agreement.written_then_read,
        _is_read_whole,
        is_of_variant=True,
    ),
    "draws": Check("what is random is determined by the generator", claims.draws, _has_draws, is_of_variant=True),
    "keep": Check("a memory cut to n tokens is that of the last n", claims.keep, _cuts_memory, is_of_variant=True),
}

# What a form must pass before it is measured.
QUICK = (
    "shapes",
    "equals_recurrent",
    "gradient",
    "step_equals_full",
    "causality",
    "split_and_resume",
    "state_size",
    "independence",
)

# characters; the errors of compilers run over pages
LONGEST_DETAIL = 600

_CORRECT: dict[tuple[object, ...], str] = {}


def check(
    variant: Variant,
    *,
    device: str = "cpu",
    forms: Sequence[str] | None = None,
    names: Sequence[str] = tuple(CHECKS),
) -> Iterator[Finding]:
    """What every check finds about the forms of a variant (all of them by default), the recurrent form first.

    `names` are those of the checks that are asked for, all if none is given.
    An exception inside a form is a failed check with the exception's text, never the end of the run.
    """
    chosen = sorted(variant.forms, key=lambda form: form != "recurrent") if forms is None else forms
    for form in chosen:
        trial = Trial(variant, form, device)
        if form not in variant.forms:
            yield _found(trial, "shapes", form)
            continue
        for name, one in CHECKS.items():
            if name in names and not one.is_of_variant and one.applies(trial):
                yield _found(trial, name, form)
    whole = Trial(variant, "recurrent", device)
    for name, one in CHECKS.items():
        if name in names and one.is_of_variant and forms is None and one.applies(whole):
            yield _found(whole, name, "")


def correct(variant: Variant, form: str, device: str = "cpu") -> str:
    """Empty where a form may be measured, otherwise its first failure. Judged once in a process.

    The readout is no form that takes tokens: it is judged by its own check and by the recurrent form's.
    Raises Unsupported for a form that the variant lacks.
    """
    is_readout = form == "readout" and variant.readout is not None
    judged = "recurrent" if is_readout else form
    key = (variant.name, variant.origins, variant.form(judged).origins, form, device)
    if key not in _CORRECT:
        trial = Trial(variant, judged, device)
        names = (*QUICK, "readout") if is_readout else QUICK
        findings = (_found(trial, name, judged) for name in names if CHECKS[name].applies(trial))
        failures = (f"{finding.check}: {finding.detail}" for finding in findings if finding.state == "failed")
        _CORRECT[key] = next(failures, "")
    return _CORRECT[key]


def count(findings: Iterable[Finding]) -> dict[State, int]:
    """How many findings ended in each state."""
    states: dict[State, int] = {"passed": 0, "failed": 0, "declared": 0, "skipped": 0}
    for finding in findings:
        states[finding.state] += 1
    return states


def _found(trial: Trial, name: str, form: str) -> Finding:
    """One check carried out."""
    variant = trial.variant
    if name in variant.deviations:
        return Finding(variant.name, form, name, "declared", variant.deviations[name])
    state: State = "failed"
    try:
        state, detail = "passed", CHECKS[name].judge(trial)
    except Wrong as problem:
        detail = str(problem)
    except Unsupported as problem:
        state, detail = "skipped", str(problem)
    except Exception as problem:
        detail = f"{type(problem).__name__}: {problem}"
    return Finding(variant.name, form, name, state, shorten(detail, LONGEST_DETAIL, placeholder=" ..."))
