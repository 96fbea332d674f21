"""The report put into files: read from the database, each file written whole or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.harness.destination import check_destination, replace_file
from attnbench.harness.environment import without_password
from attnbench.harness.errors import BadParameter, UserError, did_you_mean
from attnbench.reports.choice import Choice, kept, run_named

if TYPE_CHECKING:
    from attnbench.harness.rows import Row
    from attnbench.reports.measured import Readable
    from attnbench.reports.passage import Passage

PAGE = "attnbench.html"
TITLE = "attnbench"


@dataclass(frozen=True)
class Wishes:
    """How a report is to be: its form (html, md, json, csv), title, what of, and where.

    Without `path` a page goes to attnbench.html, and what is for machines to standard output. `site` is a folder for a
    page of each run, `figures` one that gets every figure of the page as an SVG file.
    """

    form: str = "html"
    path: Path | None = None
    title: str = TITLE
    choice: Choice = field(default_factory=Choice)
    site: Path | None = None
    figures: Path | None = None


def report(database: str | None, wishes: Wishes, *, measured: bool = True) -> str:
    """Make what was wished for; gives what to print: where it is, or the text itself. Raises UserError.

    With `measured`, the rows that attnbench ships are laid under those of the database (`reports/measured`); without a
    database they are all that is shown.
    """
    from attnbench.reports.formats import FORMATS
    from attnbench.reports.measured import reading

    if wishes.form not in FORMATS:
        raise BadParameter(
            f"--format takes {', '.join(FORMATS)}; got '{wishes.form}'. {did_you_mean(wishes.form, FORMATS)}"
        )
    _check_wishes(wishes)
    named = "" if database is None else without_password(database)
    # the pages of a site and two runs to be compared are of what the database itself holds
    overlays = measured and (database is None or (wishes.site is None and wishes.choice.compared is None))
    with reading(database, measured=overlays) as read:
        if wishes.site is not None:
            from attnbench.reports.site import write_site

            return f"site: {write_site(read, wishes.site, named, title=wishes.title, choice=wishes.choice)}"
        if wishes.form != "html":
            return _for_machines(read, wishes)
        return f"report: {_write_page(read, named, wishes)}"


def write_report(database: str | Path | None, path: Path, *, title: str = TITLE, measured: bool = False) -> Path:
    """Write the page of `database` to `path` and give the path: `report` without a choice. Raises UserError."""
    report(None if database is None else str(database), Wishes(path=path, title=title), measured=measured)
    return path


def check_report(path: Path) -> None:
    """Raise UserError now, before the work, if a report cannot be written to `path`."""
    check_destination(path, "report", PAGE)


def page_of(
    read: "Readable",
    rows: "Sequence[Row]",
    database: str,
    *,
    title: str,
    home: str = "",
    first: "Sequence[Passage]" = (),
    behind: "Sequence[Row]" = (),
) -> str:
    """The page of some rows of a database. `behind` are further attempts that numbers of `first` come from."""
    from attnbench.reports.page import page
    from attnbench.reports.sections import section_of

    tried = {row.attempt_id: section_of(row.suite) for row in rows}
    return page(
        rows,
        read.suites(),
        read.runs(),
        title=title,
        database=database,
        curves=read.series(number for number, section in tried.items() if section.needs_curves),
        texts=read.artefacts(tried),
        first=first,
        behind=behind,
        home=home,
    )


def _check_wishes(wishes: Wishes) -> None:
    from attnbench.reports.site import check_site

    if wishes.site is not None:
        if wishes.form != "html" or wishes.path is not None or wishes.choice.compared:
            raise BadParameter("--site writes a folder of pages: it goes with --title, --suite and --variant alone.")
        check_site(wishes.site)
    if wishes.form != "html" and (wishes.choice.compared or wishes.figures):
        raise BadParameter(f"--compare and --figures are of the page; --format {wishes.form} has neither.")
    if wishes.path is not None:
        check_report(wishes.path)
    elif wishes.form == "html" and wishes.site is None:
        check_report(Path(PAGE))


def _write_page(read: "Readable", database: str, wishes: Wishes) -> Path:
    first: tuple[Passage, ...] = ()
    behind: list[Row] = []
    if wishes.choice.compared is None:
        rows = kept(read.rows(), wishes.choice)
    else:
        from attnbench.reports.palette import looks
        from attnbench.reports.two_runs import two_runs_passage

        runs = {run.id: run for run in read.runs()}
        a, b = (run_named(name, runs) for name in wishes.choice.compared)
        if a == b:
            raise BadParameter(f"--compare needs two runs, got {a} twice.")
        behind = kept(read.rows(runs={a, b}, latest=False), wishes.choice)
        rows = kept(read.rows(runs={a, b}), wishes.choice)
        first = (two_runs_passage(behind, runs[a], runs[b], looks(row.variant for row in behind)),)
    text = page_of(read, rows, database, title=wishes.title, first=first, behind=behind)
    path = wishes.path or Path(PAGE)
    replace_file(path, text.encode())
    if wishes.figures is not None:
        _write_figures(text, wishes.figures)
    return path


def _write_figures(page: str, folder: Path) -> None:
    from attnbench.reports.figure_files import figure_files

    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}. Choose another folder with --figures.") from error
    for name, text in figure_files(page).items():
        replace_file(folder / name, text.encode())


def _for_machines(read: "Readable", wishes: Wishes) -> str:
    from attnbench.reports.formats import as_csv, as_json, as_markdown

    rows = kept(read.rows(), wishes.choice)
    text = {
        "md": lambda: as_markdown(rows, read.suites(), wishes.title),
        "json": lambda: as_json(rows, read.suites(), read.runs(), wishes.title),
        "csv": lambda: as_csv(rows),
    }[wishes.form]()
    if wishes.path is None:
        return text.removesuffix("\n")
    replace_file(wishes.path, text.encode())
    return f"report: {wishes.path}"
