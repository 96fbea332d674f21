"""The command line, and the one place where everything meets: it may import all, nothing imports it.

Each command imports what it needs when it runs, so that help and reading commands answer at once and need no torch.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnbench.harness.options import (
    DATABASE,
    Chosen,
    Database,
    Device,
    Exported,
    Format,
    Forms,
    Gpu,
    Measured,
    Named,
    Only,
    Probe,
    ReportFigures,
    ReportFile,
    ReportForm,
    ReportRuns,
    ReportSite,
    ReportSuites,
    ReportTitle,
    ReportVariants,
    Scale,
    Seeds,
    Suites,
    Tflops,
    Variants,
    asked,
    names_database,
    to_be_read,
)
from attnbench.variants.errors import UserError

INTERRUPTED = 130

app = typer.Typer(
    name="attnbench",
    help="What do you get, and what do you pay, when you replace softmax attention by X?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(
    help="Data sets: fetched with pip, checked, cached.", no_args_is_help=True, rich_markup_mode=None
)
db_app = typer.Typer(help="The database.", no_args_is_help=True, rich_markup_mode=None)
new_app = typer.Typer(help="Starting files.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")
app.add_typer(db_app, name="db")
app.add_typer(new_app, name="new")


def _say_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"attnbench {version('attnbench')}")
        raise typer.Exit


@app.callback()
def everywhere(
    is_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of attnbench itself."""


@app.command()
def run(
    suites: Suites = None,
    variant: Variants = None,
    form: Forms = None,
    scale: Scale = "quick",
    seed: Seeds = None,
    only: Only = None,
    setting: Chosen = None,
    device: Device = "cpu",
    workers: Annotated[int, typer.Option("--workers", "-j", help="Worker processes; 0 means one a processor.")] = 0,
    isolate: Annotated[bool, typer.Option(help="Give each case a process of its own.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds for one case, in place of the grid's.")] = None,
    rerun: Annotated[str, typer.Option(help="missing, failed or always.")] = "missing",
    offline: Annotated[bool, typer.Option(help="Fetch nothing.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the HTML report here at the end.")] = None,
    db: Database = DATABASE,
) -> None:
    """Run suites and store every case as it ends.

    Exits with 1 if a case ended as wrong, out_of_memory, timeout or error; with 2 for a mistake in what was asked;
    with 130 after Ctrl-C.
    """
    from attnbench.harness.running import Options, run_suites
    from attnbench.suites import find_suites

    request = asked(suites, variant, form, scale, seed, device, setting, only)
    if report is not None:
        from attnbench.reports.write import check_report

        check_report(report)
    options = Options(db, workers, isolate, timeout, rerun, offline)
    try:
        code = run_suites(find_suites(), request, options, sys.argv)
    except KeyboardInterrupt:
        typer.echo("attnbench: stopped; what has ended is stored, and the same command goes on from there", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if report is not None:
        from attnbench.reports.write import write_report

        typer.echo(f"report: {write_report(db, report, measured=True)}")
    raise typer.Exit(code)


@app.command(name="plan")
def plan_costs(
    context: typer.Context,
    suites: Suites = None,
    variant: Variants = None,
    form: Forms = None,
    scale: Scale = "quick",
    seed: Seeds = None,
    only: Only = None,
    setting: Chosen = None,
    device: Device = "cpu",
    tflops: Tflops = None,
    probe: Probe = False,
    gpu: Gpu = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    db: Database = DATABASE,
) -> None:
    """Say what a run would cost: cases, parameters, tokens, memory, FLOPs, hours, and where the hours come from.

    A case that does not fit into the memory of the device, or of the GPU that --gpu names, is warned of. Nothing is run,
    fetched or stored. Where neither --tflops nor --probe gives hours, the database does, or a guess.
    """
    from rich.console import Console

    from attnbench.harness.planning import Wishes, plan_suites
    from attnbench.suites import find_suites

    request = asked(suites, variant, form, scale, seed, device, setting, only)
    wishes = Wishes(db, tflops, probe, may_lack_database=not names_database(context), gpu=gpu)
    plan_suites(find_suites(), request, wishes, Console(), as_json=as_json)


@app.command()
def check(
    names: Named = None,
    form: Forms = None,
    device: Device = "cpu",
) -> None:
    """Prove each form of each variant: one line a check; exits with 1 if one fails."""
    from attnbench.harness.checking import check_variants

    raise typer.Exit(check_variants(names or [], form or [], device))


@app.command()
def kernels(
    largest: Annotated[bool, typer.Option("--largest", help="Only the shapes that need most.")] = False,
    workers: Annotated[int, typer.Option("--workers", "-j", help="Processes that compile; 0 means one a core.")] = 0,
) -> None:
    """Compile every Triton kernel for sm_80 and sm_90, without a GPU: registers, spilled bytes, shared memory.

    Exits with 1 if a kernel of a supported shape spills registers or needs more shared memory than there is.
    """
    from attnbench.harness.kernel_table import show_kernels

    raise typer.Exit(show_kernels(workers, only_largest=largest))


@app.command(name="ls")
def list_things(
    what: Annotated[str, typer.Argument(help="variants, suites, metrics, runs, data or checkpoints.")] = "variants",
    db: Database = DATABASE,
) -> None:
    """List variants, suites, metrics, runs, data sets, or checkpoints of trainings."""
    from attnbench.harness.listing import list_known
    from attnbench.suites import find_suites

    list_known(what, db, find_suites)


@app.command()
def show(
    suites: Suites = None,
    variant: Variants = None,
    scale: Annotated[list[str] | None, typer.Option(help="Only these scales.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Only these metrics; see `attnbench ls metrics`.")] = None,
    measured: Measured = False,
    db: Database = DATABASE,
) -> None:
    """Print the tables of what is stored."""
    from rich.console import Console

    from attnbench.harness.store import Store
    from attnbench.reports.measured import overlaid
    from attnbench.reports.terminal import show as show_tables

    with Store.open(db, writes=False) as store:
        read = overlaid(store) if measured else store
        chosen = {"suites": suites, "variants": variant, "scales": scale, "metrics": metric}
        show_tables(read, Console(), **chosen, runs=read.runs())


@app.command()
def verdicts(
    context: typer.Context,
    suites: Annotated[
        list[str] | None, typer.Argument(metavar="[SUITE]...", help="Suites; all that something is published of.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    measured: Measured = True,
    db: Database = DATABASE,
) -> None:
    """Hold published claims against what is stored: reproduced, direction only, contradicted, and why.

    No verdict is an error: exits with 0 whatever they are.
    """
    from rich.console import Console

    from attnbench.reports.measured import reading
    from attnbench.reports.verdict_board import show_verdicts

    with reading(to_be_read(context, db, measured=measured), measured=measured) as store:
        show_verdicts(store, Console(), suites=suites, as_json=as_json)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="KEY=VALUE[,KEY=VALUE...], as in variant=delta,form=triton.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same of the other side.")],
    db: Database = DATABASE,
) -> None:
    """Hold two selections of rows against each other: ratios with intervals, case by case.

    Keys: run, suite, variant, form, scale, device, seed, metric, and the settings of a point. Rows are matched in all that
    neither side names.
    """
    from rich.console import Console

    from attnbench.harness.store import Store
    from attnbench.reports.comparison import show_comparison

    with Store.open(db, writes=False) as store:
        show_comparison(store, Console(), a, b)


@app.command()
def report(
    context: typer.Context,
    output: ReportFile = None,
    form: ReportForm = "html",
    title: ReportTitle = "attnbench",
    suite: ReportSuites = None,
    variant: ReportVariants = None,
    compared: ReportRuns = None,
    site: ReportSite = None,
    figures: ReportFigures = None,
    measured: Measured = True,
    db: Database = DATABASE,
) -> None:
    """Write one self-contained HTML file from the database, a site of many, or the same for machines."""
    from attnbench.reports.choice import Choice
    from attnbench.reports.write import Wishes
    from attnbench.reports.write import report as write

    choice = Choice(tuple(suite or ()), tuple(variant or ()), compared)
    wishes = Wishes(form, output, title, choice, site, figures)
    typer.echo(write(to_be_read(context, db, measured=measured and compared is None), wishes, measured=measured))


@app.command()
def export(
    suites: Suites = None,
    output: Exported = None,
    form: Format = None,
    variant: Annotated[list[str] | None, typer.Option("--variant", "-v", help="Only these variants.")] = None,
    scale: Annotated[list[str] | None, typer.Option(help="Only these scales.")] = None,
    run_id: Annotated[list[str] | None, typer.Option("--run", help="Only these runs; see `attnbench ls runs`.")] = None,
    latest: Annotated[bool, typer.Option(help="Only the newest attempt of each case.")] = False,
    artefacts: Annotated[bool, typer.Option(help="Texts that belong to attempts, too, as they are.")] = False,
    db: Database = DATABASE,
) -> None:
    """Write attempts, with their runs, samples and curves, to one compact file.

    It names no computer, user or folder: of a path its last part is kept.
    """
    from attnbench.harness.exchange import export as write_file

    said = write_file(
        db,
        output,
        form,
        suites=suites or (),
        variants=variant or (),
        scales=scale or (),
        runs=run_id or (),
        latest=latest,
        artefacts=artefacts,
    )
    typer.echo(said)


@app.command(name="import")
def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files that `attnbench export` wrote.")],
    db: Database = DATABASE,
) -> None:
    """Add the rows of files to the database; what it has already is not added again."""
    from attnbench.harness.exchange import bring_in

    try:
        for said in bring_in(db, files):
            typer.echo(said)
    except KeyboardInterrupt:
        typer.echo(
            "attnbench: stopped; the files named above are stored, and the same command adds the others", err=True
        )
        raise typer.Exit(INTERRUPTED) from None


@data_app.command(name="fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets; see `attnbench ls data`.")],
) -> None:
    """Fetch data sets into the cache, so that later runs need no network."""
    from attnbench.harness.data.fetch import fetch

    for name in names:
        typer.echo(fetch(name, report=typer.echo))


@db_app.command(name="upgrade")
def db_upgrade(db: Database = DATABASE) -> None:
    """Bring an older database up to this version's tables, its rows kept."""
    from attnbench.harness.store import upgrade

    before, after = upgrade(db)
    typer.echo(f"{db} was up to date ({after})" if before == after else f"{db}: {before} -> {after}")


@new_app.command(name="variant")
def new_variant(
    name: Annotated[str, typer.Argument(help="The name of the variant: lower-case letters and digits.")],
    folder: Annotated[Path, typer.Option(help="Where to write the file.")] = Path(),
) -> None:
    """Write a working starting file for a variant of your own."""
    from attnbench.harness.new_variant import write_variant

    path = write_variant(name, folder)
    typer.echo(f"{path}\nnext: attnbench check {path}:VARIANT; attnbench run --variant {path}:VARIANT")


def main() -> None:
    """Run the command line; a user's mistake is one message and exit code 2."""
    try:
        app()
    except UserError as problem:
        print(f"attnbench: {type(problem).__name__}: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
