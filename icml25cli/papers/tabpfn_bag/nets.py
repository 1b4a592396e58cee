"""Which network a name means. Knows names and folders."""

from importlib.resources import files
from pathlib import Path

from icml25cli.core.errors import InputError, MissingError
from icml25cli.core.files import expand
from icml25cli.papers.tabpfn_bag.network import Pfn
from icml25cli.papers.tabpfn_bag.weights import load_pfn

BUILT_IN = "nano"


def load_net(name: str = BUILT_IN) -> Pfn:
    """The network called ``nano``, which ships with the toolbox, or the one in a folder.

    Raises:
        MissingError: the built-in one is not part of this installation.
        InputError: the folder does not exist, or holds no network.
    """
    if name == BUILT_IN:
        folder = Path(str(files("icml25cli.assets") / "pfn_nano"))
        if not folder.is_dir():
            raise MissingError("the network 'nano' is not part of this installation", hint="--pfn FOLDER names another")
        return load_pfn(folder)
    folder = expand(name)
    if not folder.is_dir():
        raise InputError(f"{name} is no folder of a network", hint="name nano, or a folder that pretraining wrote")
    return load_pfn(folder)
