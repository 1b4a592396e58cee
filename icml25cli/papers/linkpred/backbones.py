"""The vision encoders of the paper's own runs, for weights that the user brings: ResNet-50, VGG-16, ViT-B/16.

Parameters are named as in torchvision, whose state dicts load as they are; the classifier is left out.

Knows tensors. Does not know files or preprocessing.
"""

from collections import OrderedDict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class _Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 (He, Zhang, Ren and Sun 2016); the stride is in the 3x3, as in torchvision."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x)).relu()


class ResNet50(nn.Module):
    """To the 2048 means of the last feature map."""

    width = 2048

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
            layers = []
            for i in range(blocks):
                layers.append(_Bottleneck(inputs, width, 2 if i == 0 and stage > 1 else 1))
                inputs = 4 * width
            setattr(self, f"layer{stage}", nn.Sequential(*layers))

    def forward(self, x: Float[Tensor, "b 3 s s"]) -> Float[Tensor, "b 2048"]:
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return x.float().mean((2, 3))


class VGG16(nn.Module):
    """To the 7x7 pool of the last feature map, flat: 25088 (Simonyan and Zisserman 2015)."""

    width = 25088

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)

    def forward(self, x: Float[Tensor, "b 3 s s"]) -> Float[Tensor, "b 25088"]:
        return nn.functional.adaptive_avg_pool2d(self.features(x).float(), 7).flatten(1)


class _EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        # torchvision counts its activation and dropout, too: the linear maps are 0 and 3
        self.mlp = nn.ModuleDict({"0": nn.Linear(width, 4 * width), "3": nn.Linear(4 * width, width)})

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp["3"](nn.functional.gelu(self.mlp["0"](self.ln_2(x))))


class ViTB16(nn.Module):
    """To the 768 numbers of the class token (Dosovitskiy and others 2021); pictures of 224 pixels."""

    width = 768
    encoder: Any  # a module of parts that have the names of the weight files

    def __init__(self) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, self.width, 16, 16)
        self.class_token = nn.Parameter(torch.zeros(1, 1, self.width))
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, 197, self.width))
        self.encoder.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{i}", _EncoderLayer(self.width, 12)) for i in range(12))
        )
        self.encoder.ln = nn.LayerNorm(self.width, eps=1e-6)

    def forward(self, x: Float[Tensor, "b 3 224 224"]) -> Float[Tensor, "b 768"]:
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1) + self.encoder.pos_embedding
        return self.encoder.ln(self.encoder.layers(tokens))[:, 0].float()
