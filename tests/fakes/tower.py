"""A model whose costs can be counted by hand."""

from torch import Tensor, nn


class Tower(nn.Module):
    """Layers [width, width] without bias."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
