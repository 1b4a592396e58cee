"""The small vision encoder that ships with the toolbox: a CNN that learnt to count on pictures of synthetic graphs.

It reads 96-pixel pictures as two planes, ink and targets, and gives 256 features of which the counts it was trained on
(``assets/recipes/train_vsf_tiny.py``) are linear functions: nodes, edges, common neighbours, Adamic-Adar, resource
allocation, Jaccard, both degrees, triangles, clustering, distance. It never saw a graph that anybody evaluates on.

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
        self.blocks = nn.Sequential(_Block(16, 32), _Block(32, 64), _Block(64, 128))
        self.seen = _conv(128, 192, 1, 1)
        self.features = nn.Linear(2 * 192, WIDTH)

    def forward(self, planes: Float[Tensor, "b 2 96 96"]) -> Float[Tensor, "b 256"]:
        x = self.stem(planes.contiguous(memory_format=torch.channels_last))
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
