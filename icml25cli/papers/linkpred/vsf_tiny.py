"""The small vision encoder that ships with the toolbox: a CNN that learnt to count on pictures of synthetic graphs.

It reads 96-pixel pictures as two planes, ink and targets, and is told how far each place is from the nearer and from
the farther target. It gives 256 features of which the counts it was trained on are linear functions: nodes, edges,
common neighbours, Adamic-Adar, resource allocation, Jaccard, both degrees, triangles, clustering, distance
(``assets/recipes/train_vsf_tiny.py``). It never saw a graph that anybody evaluates on.

Knows pictures. Does not know where its weights lie.
"""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from icml25cli.papers.linkpred.raster import TARGET

SIZE = 96  # pixels
WIDTH = 256  # features


class _Block(nn.Module):
    """A convolution, and after it one more around which its input is added."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = _conv(inputs, outputs, 3, 2)
        self.same = _conv(outputs, outputs, 3, 1)

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h/2 w/2"]:
        x = self.down(x)
        return x + self.same(x)


def _conv(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, momentum=0.02), nn.ReLU(inplace=True))


class VsfTiny(nn.Module):
    """Three blocks, then what is seen on the whole canvas and where the targets are, and one layer on both."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(2, 16, 5, 2)
        self.blocks = nn.Sequential(_Block(16 + 2, 32), _Block(32, 64), _Block(64, 128))
        self.seen = _conv(128, 192, 1, 1)
        self.features = nn.Linear(2 * 192, WIDTH)

    def forward(self, planes: Float[Tensor, "b 2 96 96"]) -> Float[Tensor, "b 256"]:
        x = self.stem(planes.contiguous(memory_format=torch.channels_last))
        distances = target_distances(planes[:, 1], x.shape[-1]).to(x.dtype)
        x = torch.cat([x, distances], dim=1).contiguous(memory_format=torch.channels_last)
        x = self.seen(self.blocks(x)).float()
        targets = nn.functional.adaptive_avg_pool2d(planes[:, 1:], x.shape[-2:])
        at_targets = (x * targets).sum((2, 3)) / targets.sum((2, 3)).clamp(min=1e-6)
        with torch.autocast("cpu", enabled=False):  # counts need more than eight bits
            return self.features(torch.cat([x.mean((2, 3)), at_targets], dim=1)).relu()


def planes(pictures: UInt8[Tensor, "b s s"]) -> Float[Tensor, "b 2 s s"]:
    """Ink from 0 to 1, and where targets are."""
    target = pictures == TARGET
    ink = pictures.float().div_(254).masked_fill_(target, 0)
    return torch.stack([ink, target.float()], dim=1)


def target_distances(target: Float[Tensor, "b s s"], cells: int) -> Float[Tensor, "b 2 cells cells"]:
    """How far each of ``cells`` by ``cells`` places is from the nearer and the farther target, in picture widths.

    Two targets lie at the mean of their pixels plus and minus the spread of these along its main axis; one is both.
    """
    axis = (torch.arange(target.shape[-1]) + 0.5) / target.shape[-1]
    count = target.sum((1, 2)).clamp(min=1)
    by_row, by_column = target.sum(2), target.sum(1)
    x, y = by_column @ axis / count, by_row @ axis / count
    xx, yy = by_column @ axis**2 / count - x * x, by_row @ axis**2 / count - y * y
    xy = ((target @ axis) * axis).sum(1) / count - x * y
    # The eigenvalues' difference: what the size of the two equal spots adds to both cancels out.
    half = ((xx - yy) ** 2 + 4 * xy * xy).pow(0.25)
    angle = torch.atan2(2 * xy, xx - yy) / 2
    across, down = half * angle.cos(), half * angle.sin()
    places = (torch.arange(cells) + 0.5) / cells

    def distance(sign: int) -> Float[Tensor, "b cells cells"]:
        dx = (places[None] - (x + sign * across)[:, None]) ** 2
        dy = (places[None] - (y + sign * down)[:, None]) ** 2
        return (dx[:, None, :] + dy[:, :, None]).sqrt()

    one, other = distance(1), distance(-1)
    return torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1)
