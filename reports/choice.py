"""What a report is of: the rows of some suites and variants, or of two runs; names that nothing stored has are refused."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from attnbench.harness.errors import BadParameter, UnknownSuite, UnknownVariant, UserError, did_you_mean
from attnbench.harness.rows import Row


@dataclass(frozen=True)
class Choice:
    """Suites and variants by name, all if none is named, and two runs to hold against each other, if any."""

    suites: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    compared: tuple[str, str] | None = None

    def keeps(self, row: Row) -> bool:
        """Whether a row is of it, whatever its run."""
        return (not self.suites or row.suite in self.suites) and (not self.variants or row.variant in self.variants)


def kept(rows: Sequence[Row], choice: Choice) -> list[Row]:
    """The rows of a choice. Raises UnknownSuite or UnknownVariant for a name that no row has."""
    check_names(choice.suites, {row.suite for row in rows}, "suite", UnknownSuite)
    check_names(choice.variants, {row.variant for row in rows}, "variant", UnknownVariant)
    found = [row for row in rows if choice.keeps(row)]
    if rows and not found:
        raise UserError(
            f"nothing is stored of {', '.join(choice.variants)} in {', '.join(choice.suites)}: no row has both."
        )
    return found


def check_names(names: Collection[str] | None, known: Collection[str], what: str, refusal: type[UserError]) -> None:
    """Refuse a name that nothing stored has."""
    for name in names or ():
        if known and name not in known:
            raise refusal(f"nothing is stored of {what} '{name}'. {did_you_mean(name, known)}")


def run_named(name: str, known: Iterable[str]) -> str:
    """The run of that name, or of the one name that begins so. Raises BadParameter."""
    names = list(known)
    found = [name] if name in names else [one for one in names if one.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadParameter(f"--compare needs one run, and {len(found)} begin with '{name}': {', '.join(found)}.")
    raise BadParameter(f"no run '{name}' to compare. {did_you_mean(name, names)} `attnbench ls runs` lists them.")
