"""`attnbench ls`: what there is."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from attnbench.harness.errors import UserError, did_you_mean
from attnbench.harness.spec import Point

if TYPE_CHECKING:
    from attnbench.harness.spec import Suite


def list_known(what: str, database: str, find_suites: "Callable[[], Mapping[str, Suite]]") -> None:
    """Print a table of `what`. Raises UserError for a word that names nothing to list."""
    tables: dict[str, Callable[[], Table]] = {
        "variants": _variants,
        "suites": lambda: _suites(find_suites()),
        "metrics": _metrics,
        "runs": lambda: _runs(database),
        "data": _data,
        "checkpoints": _checkpoints,
    }
    if what not in tables:
        raise UserError(f"nothing called '{what}' to list. {did_you_mean(what, tables)}")
    Console().print(tables[what]())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    return table


def _variants() -> Table:
    from attnbench.variants.registry import find, listed

    table = _table("variants", "name", "forms", "formula", "source")
    for name in listed():
        variant = find(name)
        table.add_row(name, " ".join(variant.forms), variant.formula, variant.source)
    table.caption = "Any composition has a name: performer-m128+delta, dpfp-nu2+l2norm, ..."
    return table


def _suites(suites: "Mapping[str, Suite]") -> Table:
    table = _table("suites", "name", "question", "scales", "source")
    for suite in suites.values():
        table.add_row(suite.name, suite.question, " ".join(suite.scales), suite.source)
    return table


def _metrics() -> Table:
    from attnbench.harness.metrics import METRICS

    table = _table("metrics", "name", "unit", "better", "definition")
    for metric in METRICS.values():
        table.add_row(metric.name, metric.unit, metric.better, metric.definition)
    return table


def _runs(database: str) -> Table:
    from attnbench.harness.store import Store

    table = _table("runs", "id", "state", "started (UTC)", "cases", "commit", "command")
    with Store.open(database, writes=False) as store:
        for known in store.runs():
            commit = known.commit[:12] + ("+" if known.is_dirty else "")
            counts = ", ".join(f"{count} {status}" for status, count in known.attempts.items())
            table.add_row(known.id, known.state, f"{known.started_at:%Y-%m-%d %H:%M}", counts, commit, known.command)
    return table


def _data() -> Table:
    from attnbench.harness.data.catalogue import DATA_SETS
    from attnbench.harness.data.fetch import is_cached

    table = _table("data sets", "name", "what", "words", "download", "here", "licence", "source")
    for data in DATA_SETS.values():
        size = f"{data.download_bytes / 1e6:.1f} MB" if data.download_bytes else "none"
        words = f"{data.words:,}" if data.words else "differs"
        here = "yes" if is_cached(data.name) else "no"
        table.add_row(data.name, data.what, words, size, here, data.licence, data.origin)
    table.caption = "`attnbench data fetch NAME` brings one here."
    return table


def _checkpoints() -> Table:
    from attnbench.harness.checkpoints import checkpoint_folder, checkpoints

    table = _table("checkpoints", "training", "settings", "step", "MB", "written (UTC)", "file")
    for path, saved in checkpoints(checkpoint_folder()):
        size = f"{path.stat().st_size / 1e6:.1f}"
        if saved is None:
            table.add_row("cannot be read", "", "", size, "", path.name)
            continue
        of = saved.training
        step = f"{saved.step}, finished" if saved.is_finished else str(saved.step)
        written = f"{datetime.fromtimestamp(saved.written_at, UTC):%Y-%m-%d %H:%M}"
        name = f"{of['suite']}/{of['variant']}/{of['form']}/seed{of['seed']} on {of['device']}"
        table.add_row(name, str(Point.from_json(str(of["point"]))), step, size, written, path.name)
    table.caption = f"They lie in {checkpoint_folder()}. Any of them can be removed: its training then begins anew."
    return table
