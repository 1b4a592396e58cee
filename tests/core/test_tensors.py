import json

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from icml25cli.core.tensors import sort_metadata


def test_the_same_tensors_and_metadata_are_the_same_bytes(tmp_path):
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    said = {"z": 'quoted "π" \\ \x1f\n', "a": json.dumps([1, 2]), "middle": "", **{str(i): "x" for i in range(20)}}
    files = [tmp_path / f"{i}.safetensors" for i in range(4)]
    for file in files:
        save_file({"rows": rows, "more": rows.astype(np.int8)}, file, metadata=said)
        size = file.stat().st_size
        sort_metadata(file)
        assert file.stat().st_size == size
    assert len({file.read_bytes() for file in files}) == 1
    with safe_open(files[0], "numpy") as opened:
        assert opened.metadata() == said
        assert np.array_equal(opened.get_tensor("rows"), rows)
