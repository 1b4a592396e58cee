"""Which network a name means. Knows names and paths."""

from importlib.resources import files
from pathlib import Path

from icml25cli.core.errors import InputError, MissingError
from icml25cli.core.files import expand
from icml25cli.papers.tabpfn_bag.network import Pfn
from icml25cli.papers.tabpfn_bag.tabpfn_package import PackagePfn, load_tabpfn
from icml25cli.papers.tabpfn_bag.tabpfn_v1 import TabPfnV1, load_tabpfn_v1
from icml25cli.papers.tabpfn_bag.weights import load_pfn

BUILT_IN = "nano"
CHECKPOINTS = {TabPfnV1.form: load_tabpfn_v1, PackagePfn.form: load_tabpfn}


def load_net(name: str = BUILT_IN) -> Pfn:
    """The network called ``nano``, which ships with the toolbox, in a folder, or of a checkpoint ``FORM:FILE``.

    Raises:
        MissingError: the built-in one is not part of this installation, or the package that a checkpoint needs.
        InputError: the file or folder does not exist, or holds no network.
    """
    if is_checkpoint(name):
        form, _, file = name.partition(":")
        return CHECKPOINTS[form](expand(file))
    if name == BUILT_IN:
        folder = Path(str(files("icml25cli.assets") / "pfn_nano"))
        if not folder.is_dir():
            raise MissingError("the network 'nano' is not part of this installation", hint="--pfn FOLDER names another")
        return load_pfn(folder)
    folder = expand(name)
    if not folder.is_dir():
        raise InputError(
            f"{name} is no folder of a network",
            hint="name nano, tabpfn-v1:FILE, tabpfn:FILE, or a folder that pretraining wrote",
        )
    return load_pfn(folder)


def is_checkpoint(name: str) -> bool:
    """Whether a name has a checkpoint's form in front: ``tabpfn-v1:FILE``, or ``tabpfn:FILE`` of the package."""
    return name.partition(":")[0] in CHECKPOINTS and ":" in name
