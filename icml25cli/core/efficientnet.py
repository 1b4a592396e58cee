"""EfficientNet-Lite0 up to its pool (Tan and Le 2019; the variant without squeeze-and-excitation and with ReLU6).

Built from the state dict of the asset ``efficientnet-lite0``, every batch normalisation folded into its convolution.

Knows tensors. Does not know files or preprocessing.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

WIDTH = 1280
EPSILON = 1e-3  # of its batch normalisations
# stride, expansion, outputs of each of the 16 blocks; the kernels' sizes are their weights'
BLOCKS = (
    (1, 1, 16),
    *((stride, 6, 24) for stride in (2, 1)),
    *((stride, 6, 40) for stride in (2, 1)),
    *((stride, 6, 80) for stride in (2, 1, 1)),
    *((1, 6, 112) for _ in range(3)),
    *((stride, 6, 192) for stride in (2, 1, 1, 1)),
    (1, 6, 320),
)


class _Conv(nn.Module):
    """A convolution with a normalisation folded in, padded as TensorFlow's SAME: what is odd goes right and below."""

    def __init__(self, state: Mapping[str, Tensor], conv: str, norm: str, stride: int = 1, *, depthwise: bool = False):
        super().__init__()
        weight = state[f"{conv}.weight"]
        scale = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + EPSILON)
        self.weight = nn.Parameter(weight * scale[:, None, None, None])
        self.bias = nn.Parameter(state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale)
        self.stride, self.groups = stride, len(weight) if depthwise else 1

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        kernel = self.weight.shape[-1]
        height, width = (max((-(-n // self.stride) - 1) * self.stride + kernel - n, 0) for n in x.shape[-2:])
        x = pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))
        return conv2d(x, self.weight, self.bias, self.stride, groups=self.groups)


class _Block(nn.Module):
    """Inverted residual: widen, filter each channel, narrow; its input is added where the shape is the same."""

    def __init__(self, state: Mapping[str, Tensor], name: str, stride: int, expansion: int, outputs: int) -> None:
        super().__init__()
        self.widen = _Conv(state, f"{name}._expand_conv", f"{name}._bn0") if expansion > 1 else None
        self.filter = _Conv(state, f"{name}._depthwise_conv", f"{name}._bn1", stride, depthwise=True)
        self.narrow = _Conv(state, f"{name}._project_conv", f"{name}._bn2")
        inputs = (self.widen or self.filter).weight.shape[1 if self.widen else 0]
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        y = relu6(self.widen(x)) if self.widen else x
        y = self.narrow(relu6(self.filter(y)))
        return x + y if self.residual else y


class EfficientNetLite0(nn.Module):
    """From pictures to the 1280 means of the last feature map.

    Raises:
        KeyError, RuntimeError: the state dict is of another network.
    """

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.stem = _Conv(state, "_conv_stem", "_bn0", stride=2)
        self.blocks = nn.Sequential(
            *(
                _Block(state, f"_blocks.{i}", stride, expansion, outputs)
                for i, (stride, expansion, outputs) in enumerate(BLOCKS)
            )
        )
        self.head = _Conv(state, "_conv_head", "_bn1")

    def forward(self, x: Float[Tensor, "b 3 s s"]) -> Float[Tensor, "b 1280"]:
        x = relu6(self.stem(x.contiguous(memory_format=torch.channels_last)))
        return relu6(self.head(self.blocks(x))).float().mean((2, 3))
