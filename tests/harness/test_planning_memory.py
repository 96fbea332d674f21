"""`attnbench plan` and memory: what a step holds, and where that does not fit."""

import io
from typing import Any

import costed
import pytest
from rich.console import Console

from attnbench.harness import devices
from attnbench.harness.errors import UnknownDevice
from attnbench.harness.plan import Request
from attnbench.harness.planning import Line, Wishes, lines_of, print_lines

SUITES = {"costed": costed.COSTED}
HERE = Wishes("attnbench.db", may_lack_database=True)


@pytest.fixture(autouse=True)
def _here(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(wishes: Wishes, **request: Any) -> dict[str, Line]:
    """The lines by variant and parameters."""
    found = lines_of(SUITES, Request(**request), wishes)
    return {f"{line.variant} {line.parameters}": line for line in found}


def printed(wishes: Wishes, request: Request) -> str:
    console = Console(file=io.StringIO(), width=300)
    print_lines(lines_of(SUITES, request, wishes), request, SUITES, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_line_shows_the_memory_of_its_largest_case_and_one_that_nobody_counts_shows_none() -> None:
    found = lines(HERE)
    assert (found["softmax 2000"].peak_bytes, found["linear 1000"].peak_bytes) == (4 * 2**30, 2 * 2**30)
    assert found["nobody None"].peak_bytes is None
    assert "4 GiB" in printed(HERE, Request())


def test_what_does_not_fit_into_the_named_gpu_is_warned_of() -> None:
    roomy, tight = (
        lines(Wishes("attnbench.db", may_lack_database=True, gpu=gpu), settings={"width": (7, 8)}, scale="smoke")
        for gpu in ("v100-32", "v100-16")
    )
    assert not any(line.exceeds for line in roomy.values())
    # 14 GiB fit into the 15 that are left of 16, 16 do not
    assert [name for name, line in tight.items() if line.exceeds] == ["softmax 8000", "linear 8000"]
    said = printed(
        Wishes("attnbench.db", may_lack_database=True, gpu="v100-16"),
        Request(settings={"width": (8,)}, scale="smoke"),
    )
    assert "16 GiB !" in said
    assert (
        "Will not fit: a training step of softmax, linear holds more than the 15 GiB that v100-16 has for it." in said
    )


def test_without_a_name_memory_is_held_against_the_device_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "memory_bytes", lambda: 2**31)
    assert lines(HERE, scale="smoke")["linear 1000"].exceeds == ""
    monkeypatch.setattr(devices, "memory_bytes", lambda: 2**31 - 1)
    assert lines(HERE, scale="smoke")["linear 1000"].exceeds == "2 GiB that this machine has for it"
    monkeypatch.setattr(devices, "memory_bytes", lambda: None)
    assert lines(HERE, scale="smoke")["linear 1000"].exceeds == ""


def test_a_gpu_that_nobody_knows_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownDevice, match=r"no GPU 'h10' is known by name\. .*h100"):
        lines(Wishes("attnbench.db", may_lack_database=True, gpu="h10"))


def test_several_processes_on_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "memory_bytes", lambda: 2**32)
    assert lines(HERE, scale="smoke", device="cpu*2")["linear 1000"].exceeds == ""
    monkeypatch.setattr(devices, "memory_bytes", lambda: 2**32 - 2)
    found = lines(HERE, scale="smoke", device="cpu*2")["linear 1000"]
    assert found.exceeds == "2 GiB that each of 2 processes on this machine has for it"
