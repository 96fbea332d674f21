"""Options that several commands have, with the words that help says of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attnbench.harness.plan import Request

DATABASE = "attnbench.db"

Database = Annotated[
    str,
    typer.Option("--db", envvar="ATTNBENCH_DB", show_envvar=True, help="Path of an SQLite file, or a database URL."),
]
Suites = Annotated[
    list[str] | None, typer.Argument(metavar="[SUITE]...", help="Suites; all that have the scale if none is named.")
]
Scale = Annotated[str, typer.Option(help="smoke, quick, standard or paper.")]
Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", "-v", help="A variant's name or path/to/file.py:VARIANT. May be repeated."),
]
Named = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Variants; every listed one if none is named.")
]
Forms = Annotated[
    list[str] | None, typer.Option("--form", "-f", help="A form in place of each suite's choice. May be repeated.")
]
Seeds = Annotated[list[int] | None, typer.Option(help="Seeds in place of the grid's. May be repeated.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", help="NAME=VALUE[,VALUE...]: the points of the grid that have it, as in --only pairs=20,40."
    ),
]
Chosen = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE[,VALUE...]: settings in place of the grid's, as in --set pairs=20,40."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N; cuda*N or cpu*N: N processes train each model.")]
Tflops = Annotated[float | None, typer.Option(help="Effective TFLOP/s of one device, to come to hours by.")]
Probe = Annotated[bool, typer.Option("--probe", help="Measure that by a few training steps on this device.")]
Gpu = Annotated[
    str,
    typer.Option(help="Warn where a case does not fit into this GPU's memory: v100-16, a100-80, h100, rtx4090, ..."),
]

Measured = Annotated[
    bool,
    typer.Option("--measured/--no-measured", help="Show rows shipped with attnbench where the database has none."),
]

ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The file; a page goes to attnbench.html if not given, other forms to standard output."
    ),
]
ReportForm = Annotated[str, typer.Option("--format", help="html, or for machines: md, json, csv.")]
ReportTitle = Annotated[str, typer.Option(help="The title of the page.")]
ReportSuites = Annotated[list[str] | None, typer.Option("--suite", help="Only these suites. May be repeated.")]
ReportVariants = Annotated[
    list[str] | None, typer.Option("--variant", "-v", help="Only these variants. May be repeated.")
]
ReportRuns = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--compare",
        metavar="RUN RUN",
        help="Only these two runs, and the second against the first; see `attnbench ls runs`.",
    ),
]
ReportSite = Annotated[
    Path | None,
    typer.Option("--site", help="Write a folder in place of a file: a page of each run, and an index with trends."),
]
ReportFigures = Annotated[
    Path | None, typer.Option("--figures", help="Write every figure of the page into this folder as SVG, too.")
]


def names_database(context: typer.Context) -> bool:
    """Whether somebody said which database it is, by --db or in the environment."""
    source = context.get_parameter_source("db")
    return source is None or source.name != "DEFAULT"


def to_be_read(context: typer.Context, db: str, *, measured: bool) -> str | None:
    """The database; None, and said, where nobody named one and there is none yet, so that shipped rows are all there is."""
    if not measured or Path(db).exists() or names_database(context):
        return db
    typer.echo(
        f"no database at {db} yet, so these are the rows shipped with attnbench; `attnbench run` measures", err=True
    )
    return None


def asked(
    suites: list[str] | None,
    variants: list[str] | None,
    forms: list[str] | None,
    scale: str,
    seeds: list[int] | None,
    device: str,
    settings: list[str] | None,
    only: list[str] | None,
) -> "Request":
    """What the options of `run` and `plan` ask for."""
    from attnbench.harness.plan import Request, parse_settings

    return Request(
        suites=tuple(suites or ()),
        variants=tuple(variants or ()),
        forms=tuple(forms or ()),
        scale=scale,
        seeds=tuple(seeds or ()),
        device=device,
        settings=parse_settings(settings or ()),
        only=parse_settings(only or ()),
    )


Exported = Annotated[
    Path | None, typer.Option("--output", "-o", help="The file; attnbench.jsonl.xz or attnbench.csv if not given.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="rows (compressed text, which import reads) or csv (flat, without curves); rows unless OUTPUT ends in .csv.",
    ),
]
