"""A folder of pages: one for each run, one of the newest attempt of every case, an index with trends that leads to them."""

from dataclasses import dataclass
from pathlib import Path

from attnbench.harness.destination import replace_file
from attnbench.harness.environment import without_password
from attnbench.harness.errors import UserError
from attnbench.reports.choice import Choice, kept
from attnbench.reports.embedded import embedded
from attnbench.reports.measured import Readable
from attnbench.reports.palette import looks
from attnbench.reports.provenance import RunFacts, commands_of, machines_of
from attnbench.reports.rendering import render, slug
from attnbench.reports.trends import trends

INDEX = "index.html"
NEWEST = "newest.html"


@dataclass(frozen=True)
class Listed:
    """One run in the index: the file of its page, and how its attempts ended."""

    run: RunFacts
    file: str
    endings: str


def check_site(folder: Path) -> None:
    """Raise UserError now, before the work, if a site cannot be written into `folder`."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"a folder was needed for the site, but {folder} is a file. Choose another with --site.")
    if not folder.exists() and not folder.parent.is_dir():
        raise UserError(f"no folder {folder.parent} for the site {folder}. Make it first: mkdir -p {folder.parent}")


def write_site(read: Readable, folder: Path, database: str, *, title: str, choice: Choice) -> Path:
    """Write the pages of all runs that have a row of `choice` into `folder`, and give the index.

    Files of the same names are replaced, others are left alone. Raises UserError where one cannot be written.
    """
    from attnbench.reports.write import page_of

    check_site(folder)
    folder.mkdir(exist_ok=True)
    everything = kept(read.rows(latest=False), choice)
    listed = []
    for run in read.runs():
        rows = [row for row in read.rows(runs={run.id}) if choice.keeps(row)]
        if rows:
            file = f"run-{slug(run.id)}.html"
            text = page_of(read, rows, database, title=f"{title}: run {run.id}", home=INDEX)
            replace_file(folder / file, text.encode())
            statuses = {row.attempt_id: row.status.value for row in rows}.values()
            endings = (f"{list(statuses).count(one)} {one.replace('_', ' ')}" for one in dict.fromkeys(statuses))
            listed.append(Listed(run, file, ", ".join(endings)))
    newest = [row for row in read.rows() if choice.keeps(row)]
    replace_file(folder / NEWEST, page_of(read, newest, database, title=title, home=INDEX).encode())
    drawn = looks(row.variant for row in everything)
    found = trends(everything, read.suites(), [one.run for one in listed], drawn)
    behind = {
        number
        for one in found
        for table in one.tables
        for line in table.lines
        for cell in line.cells
        for number in cell.attempts
    }
    shown = [row for row in everything if row.attempt_id in behind]
    axes = {suite.name: suite.axis for suite in read.suites()}
    commands = {
        number: command
        for name in {row.suite for row in shown}
        for number, command in commands_of([row for row in shown if row.suite == name], axes.get(name, "")).items()
    }
    text = render(
        "site.html.j2",
        title=title,
        database=without_password(database),
        listed=listed[::-1],
        newest=NEWEST,
        machines=machines_of(everything, read.runs()),
        trends=found,
        looks=drawn,
        data=embedded(shown, read.runs(), commands, {}),
    )
    replace_file(folder / INDEX, text.encode())
    return folder / INDEX
