"""Small networks for tests: random in every weight."""

import torch

from icml25cli.papers.tabpfn_bag.learners import random_net
from icml25cli.papers.tabpfn_bag.network import NanoPfn, Pfn, PfnConfig

SMALL = PfnConfig(columns=8, classes=4, width=16, heads=2, layers=2, hidden=32)


def small_net(config: PfnConfig = SMALL, seed: int = 0) -> Pfn:
    """As a control's, its weights rounded to what the file of a network holds."""
    net = random_net(NanoPfn(config), seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(weight.half().float())
    return net
