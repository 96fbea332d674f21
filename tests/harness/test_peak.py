"""Peak memory: bytes that tensors hold at once, and nothing else."""

import gc
import os

import pytest
import torch

from attnbench.harness.peak import peak_bytes, tensor_bytes

CPU = torch.device("cpu")
# 2^16 floats: large beside the few bytes of scalars that torch makes on the way
COUNT = 1 << 16
BYTES = 4 * COUNT
SLACK = 1024


def test_what_is_held_at_once_counts_and_what_is_released_before_does_not() -> None:
    def call() -> None:
        first = torch.zeros(COUNT)
        second = first + 1  # two
        del first
        third = second * 2  # two again
        del second
        third.sum()

    assert 2 * BYTES <= peak_bytes(call, CPU) < 2 * BYTES + SLACK


def test_what_was_held_before_does_not_count() -> None:
    before = torch.zeros(10 * COUNT)
    assert BYTES <= peak_bytes(lambda: before[:COUNT] + 1, CPU) < BYTES + SLACK


def test_what_only_a_circle_of_references_held_before_is_not_given_back_during_the_call() -> None:
    def leave() -> None:
        circle: list[object] = [torch.zeros(10 * COUNT)]
        circle.append(circle)

    def call() -> None:
        gc.collect()
        torch.zeros(COUNT)

    leave()
    assert BYTES <= peak_bytes(call, CPU) < BYTES + SLACK


def test_a_view_is_no_copy() -> None:
    before = torch.zeros(COUNT)
    assert peak_bytes(lambda: before.view(2, -1).transpose(0, 1), CPU) == 0


def test_what_backward_keeps_counts() -> None:
    x = torch.zeros(COUNT, requires_grad=True)

    def train() -> None:
        # exp keeps its result for its gradient; result, incoming gradient and outgoing gradient are there at once
        torch.autograd.grad(x.exp(), x, torch.ones(COUNT))

    assert 3 * BYTES <= peak_bytes(train, CPU) < 3 * BYTES + SLACK


def test_workspaces_inside_an_operation_count() -> None:
    x = torch.zeros(1 << 8, 1 << 8)
    # sorting gives values and eight-byte positions
    assert peak_bytes(lambda: x.sort(dim=1), CPU) >= 3 * x.numel() * 4


def test_memory_that_is_not_a_tensors_does_not_count() -> None:
    assert peak_bytes(lambda: bytearray(10 * BYTES), CPU) == 0


def test_the_same_call_has_the_same_peak() -> None:
    def call() -> None:
        x = torch.ones(100, 100)
        (x @ x).softmax(-1).sum()

    assert len({peak_bytes(call, CPU) for _ in range(3)}) == 1


def test_an_error_inside_the_call_gets_out_and_standard_error_is_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    def call() -> None:
        os.write(2, b"said meanwhile\n")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        peak_bytes(call, CPU)
    os.write(2, b"said afterwards\n")
    # the profiler's own notes are kept off it
    assert capfd.readouterr().err == "said meanwhile\nsaid afterwards\n"


def test_the_bytes_of_tensors_are_those_of_their_elements() -> None:
    state = {"S": torch.zeros(2, 3, 4), "z": torch.zeros(5, dtype=torch.float64), "n": torch.zeros(7, dtype=torch.int8)}
    assert tensor_bytes(state) == 2 * 3 * 4 * 4 + 5 * 8 + 7


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_peak_is_the_allocators_above_what_was_there() -> None:
    cuda = torch.device("cuda")
    before = torch.zeros(10 * COUNT, device=cuda)

    def call() -> None:
        before[:COUNT] + 1 + (before[:COUNT] * 2)

    call()
    assert 3 * BYTES <= peak_bytes(call, cuda) < 4 * BYTES
