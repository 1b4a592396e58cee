"""Train `pfn-nano`, the built-in prior-fitted network for tables, on synthetic tables alone.

    python assets/recipes/train_pfn_nano.py --work DIR [--until STEP]
    python assets/recipes/train_pfn_nano.py --work DIR --decay-from STEP [--decay-steps N]

The first form has no end: the rate stays at its peak, and the same command goes on from the last checkpoint in --work.
The second lets the rate fall from a step that was kept (every thousandth) and writes the network to --work/network
when that is done; the first can then be continued as if nothing had happened.
"""

import argparse
import json
from pathlib import Path

import torch

from icml25cli.papers.tabpfn_bag.pretraining import Plan, pretrain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--until", type=int, help="stop before this step")
    parser.add_argument("--decay-from", type=int, metavar="STEP", help="a step that is a multiple of 1000 and was kept")
    parser.add_argument("--decay-steps", type=int, default=4000)
    parser.add_argument("--rate", type=float, default=Plan.rate, help="peak learning rate")
    parser.add_argument("--decay", type=float, default=Plan.decay, help="weight decay of hidden matrices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    plan = Plan(rate=args.rate, decay=args.decay, seed=args.seed, threads=args.threads)
    pretrain(
        args.work,
        plan,
        until=args.until,
        decay_from=args.decay_from,
        decay_steps=args.decay_steps,
        say=lambda line: print(json.dumps(line), flush=True),
    )


if __name__ == "__main__":
    main()
