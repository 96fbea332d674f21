"""How much memory devices have: the one that is here, and GPUs by name. Torch is asked for CUDA devices only."""

from collections.abc import Mapping
from dataclasses import dataclass

from attnbench.harness.environment import memory_bytes
from attnbench.harness.errors import UnknownDevice, did_you_mean
from attnbench.harness.spec import processes_of

GIB = 1 << 30
# of a GPU's memory the driver, CUDA's context and its libraries' workspaces take this before the first tensor
TAKEN_ON_CUDA = GIB

# name -> GiB as the maker gives them
GPUS: Mapping[str, int] = {
    "t4": 16,
    "v100-16": 16,
    "v100-32": 32,
    "rtx3090": 24,
    "rtx4090": 24,
    "rtx5090": 32,
    "l4": 24,
    "l40s": 48,
    "a10": 24,
    "a100-40": 40,
    "a100-80": 80,
    "h100": 80,
    "h200": 141,
    "b200": 180,
}


@dataclass(frozen=True)
class Room:
    """The bytes that tensors can have on a device, and how it is called."""

    device: str
    bytes: int


def room_of_gpu(name: str) -> Room:
    """That of a GPU by name. Raises UnknownDevice."""
    if name not in GPUS:
        raise UnknownDevice(f"no GPU '{name}' is known by name. {did_you_mean(name, GPUS)}")
    return Room(name, GPUS[name] * GIB - TAKEN_ON_CUDA)


def room_here(device: str) -> Room | None:
    """That of each process on a device of this machine; None where the system does not tell.

    On cpu*N the processes share the machine's memory, on cuda*N each has a GPU.
    """
    kind, count = processes_of(device)
    if kind.partition(":")[0] == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(torch.device(kind))
        return Room(f"this {properties.name}", properties.total_memory - TAKEN_ON_CUDA)
    total = memory_bytes()
    name = "this machine" if count == 1 else f"each of {count} processes on this machine"
    return None if total is None else Room(name, total // count)
