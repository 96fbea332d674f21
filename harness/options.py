"""Options that several commands have, with the words that help says of them."""

from typing import Annotated

import typer

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

Measured = Annotated[
    bool,
    typer.Option("--measured/--no-measured", help="Show rows shipped with attnbench where the database has none."),
]
