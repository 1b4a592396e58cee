"""Model references: what resolves, what is refused and in which words. The hub is a server of our own, on loopback."""

import json
import math
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from icml25cli.core import gguf_cache, models
from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.core.models import aliases, load_model, load_tokenizer, pick_device, resolve
from icml25cli.core.streaming import StreamedModel
from tests.make_models import make_gguf, make_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model in several shards. Not to be written to."""
    return make_model(tmp_path_factory.mktemp("made") / "llama", shard="50KB")


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return shutil.copytree(made, tmp_path / "model")


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches of the test's own, and a hub that refuses connections."""
    from huggingface_hub import constants

    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


# --- directories -------------------------------------------------------------------------------------------------


def test_a_directory_resolves_to_itself_and_loads(made: Path):
    source = resolve(str(made))
    assert (source.name, source.path, source.notes) == (str(made), made, ())
    assert source.config["model_type"] == "llama"
    tokenizer = load_tokenizer(source)
    ids = tokenizer("to be", return_tensors="pt").input_ids
    assert tokenizer.decode(ids[0]) == "to be"
    stored = {k: v for file in made.glob("*.safetensors") for k, v in load_file(file).items()}
    loaded = load_model(source)
    assert not loaded.training
    assert torch.equal(
        loaded.get_parameter("model.layers.2.mlp.up_proj.weight"), stored["model.layers.2.mlp.up_proj.weight"]
    )
    assert load_model(source, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_a_name_with_brackets_is_a_path_like_any_other(made: Path, tmp_path: Path):
    path = tmp_path / "model[/]dir"
    with pytest.raises(InputError, match=r"no model is called .*model\[/\]dir"):
        resolve(str(path))
    path.parent.mkdir(exist_ok=True)
    shutil.copytree(made, path)
    assert resolve(str(path)).name == str(path)
    assert load_model(resolve(path)).config.vocab_size == 257


def no_config(model: Path) -> None:
    (model / "config.json").unlink()


def emptied(model: Path) -> None:
    shutil.rmtree(model)
    model.mkdir()


def config_only(model: Path) -> None:
    for file in model.glob("model*"):
        file.unlink()


def pickle_only(model: Path) -> None:
    config_only(model)
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def adapter(model: Path) -> None:
    emptied(model)
    (model / "adapter_config.json").write_text("{}")


def cut_data(model: Path) -> None:
    file = model / "model-00002-of-00004.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def cut_header(model: Path) -> None:
    file = model / "model-00002-of-00004.safetensors"
    file.write_bytes(file.read_bytes()[:50])


def lengthened(model: Path) -> None:
    with open(model / "model-00002-of-00004.safetensors", "ab") as file:
        file.write(b"\0")


def no_shard(model: Path) -> None:
    (model / "model-00003-of-00004.safetensors").unlink()


def no_index(model: Path) -> None:
    (model / "model.safetensors.index.json").unlink()


def edited(model: Path, name: str, edit: Callable[[dict], None]) -> None:
    value = json.loads((model / name).read_text())
    edit(value)
    (model / name).write_text(json.dumps(value))


def index_lies(model: Path) -> None:
    edited(
        model,
        "model.safetensors.index.json",
        lambda index: index["weight_map"].update({"lm_head.weight": "model-00002-of-00004.safetensors"}),
    )


def index_escapes(model: Path) -> None:
    edited(
        model,
        "model.safetensors.index.json",
        lambda index: index["weight_map"].update({"lm_head.weight": "../model-00001-of-00004.safetensors"}),
    )


def index_no_json(model: Path) -> None:
    (model / "model.safetensors.index.json").write_text("{")


def config_no_json(model: Path) -> None:
    (model / "config.json").write_text("model_type: llama")


def config_no_type(model: Path) -> None:
    edited(model, "config.json", lambda config: config.pop("model_type"))


def unknown_type(model: Path) -> None:
    edited(model, "config.json", lambda config: config.update(model_type="no-such-model"))


def encoder(model: Path) -> None:
    edited(model, "config.json", lambda config: config.update(model_type="bert", architectures=["BertModel"]))


def absurd_config(model: Path) -> None:
    edited(model, "config.json", lambda config: config.update(hidden_size="wide"))


def headed(edit: Callable[[dict, str, str], None]) -> Callable[[Path], None]:
    """A fault in a header, made by ``edit(header, first tensor, second tensor)``."""

    def fault(model: Path) -> None:
        file = model / "model-00002-of-00004.safetensors"
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        edit(header, *[name for name in header if name != "__metadata__"][:2])
        changed = json.dumps(header).encode().ljust(length)
        file.write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + length :])

    return fault


SECOND = "model-00002-of-00004.safetensors"


def tensor_field(**changes: object) -> Callable[[Path], None]:
    return headed(lambda header, first, _: header[first].update(changes))


overlapping = headed(lambda header, first, second: header[first].update(data_offsets=header[second]["data_offsets"]))


def twice_negative(header: dict, first: str, _: str) -> None:
    header[first]["shape"] = [-1, -math.prod(header[first]["shape"])]


def beyond_the_library(header: dict, first: str, _: str) -> None:
    """An empty tensor that fits the file, but is none that the library would read."""
    header["more"] = {"dtype": "F32", "shape": [0, 2**70], "data_offsets": header[first]["data_offsets"][:1] * 2}


def test_an_output_that_holds_models_is_not_one_and_says_so(tmp_path):
    (tmp_path / "out/packed").mkdir(parents=True)
    with pytest.raises(InputError, match="has no config") as refused:
        resolve(tmp_path / "out")
    assert "out/packed" in (refused.value.hint or "")


def config_field(**changes: object) -> Callable[[Path], None]:
    return lambda model: edited(model, "config.json", lambda config: config.update(changes))


def eight_bit_floats(model: Path) -> None:
    file = model / "model-00002-of-00004.safetensors"
    save_file({name: tensor.to(torch.float8_e4m3fn) for name, tensor in load_file(file).items()}, file)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (emptied, "/model is empty"),
        (no_config, "/model has no config.json"),
        (config_only, "/model has no safetensors weights"),
        (pickle_only, r"only as a pickle \(pytorch_model.bin\)"),
        (adapter, "adapter, not a model"),
        (cut_data, "model-00002-of-00004.safetensors is cut short: [0-9]+ bytes where its header promises [0-9]+"),
        (cut_header, "model-00002-of-00004.safetensors is cut short or is not a safetensors file: 50 bytes"),
        (lengthened, "model-00002-of-00004.safetensors is too long"),
        (no_shard, "lacks the shard model-00003-of-00004.safetensors"),
        (no_index, "shards but neither"),
        (index_lies, "says that model-00002-of-00004.safetensors holds lm_head.weight, which it does not"),
        (index_escapes, "names a file outside its directory"),
        (index_no_json, "index.json is not JSON"),
        (config_no_json, "config.json is not JSON"),
        (config_no_type, "config.json names no model_type"),
        (unknown_type, "no causal language model of type no-such-model"),
        (encoder, "BertModel, which is no causal language model"),
        (absurd_config, "config.json cannot be used: .*hidden_size"),
        (overlapping, "model-00002-of-00004.safetensors: the header of tensor .* contradicts itself"),
        (tensor_field(shape="32x32"), "the header of .*00002-of-00004.safetensors: the field .*shape is missing or of"),
        (tensor_field(shape=[32.0, 32]), "the header of .*: the field .*shape.0. is"),
        (tensor_field(dtype=["F32"]), "the header of .*: the field .*dtype is"),
        (tensor_field(data_offsets=None), "the header of .*: the field .*data_offsets is"),
        (tensor_field(data_offsets=[0, 8, 8]), "has no readable safetensors header"),
        (tensor_field(data_offsets=[-8, 8]), "contradicts itself"),
        (headed(twice_negative), "contradicts itself"),
        (headed(lambda header, first, _: header.update({first: 3})), "the header of .*: the field .* is"),
        (headed(lambda header, *_: header.update(__metadata__={"format": 3})), "the metadata of .*: the field format"),
        (config_field(num_hidden_layers=10**9), "config.json: num_hidden_layers is 1000000000, and no model with"),
        (config_field(num_hidden_layers=-1), "config.json: num_hidden_layers is -1"),
        (config_field(text_config={"n_layer": 1e999}), "config.json: n_layer is inf"),
        (config_field(num_labels=10**9), "config.json: num_labels is"),
        (config_field(max_position_embeddings=-1), "config.json: max_position_embeddings is -1"),
        (config_field(num_attention_heads=0, head_dim=None), "config.json cannot be used: .*zero"),
        (eight_bit_floats, "is stored as F8_E4M3, which is not supported"),
    ],
)
def test_a_broken_directory_is_refused_by_one_sentence_that_names_it(model: Path, fault: Callable, message: str):
    fault(model)
    with pytest.raises(InputError, match=message) as caught:
        resolve(model)
    assert "\n" not in caught.value.message


def test_weights_of_no_model_are_refused_when_the_whole_model_is_loaded(model: Path):
    weights = {k: v for file in model.glob("*.safetensors") for k, v in load_file(file).items()}
    config_only(model)
    source = resolve(_saved(model, weights | {"model.layers.1.mlp.up_proj.weight": torch.full((48, 32), torch.nan)}))
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight holds values that are not finite"):
        load_model(source)
    _saved(model, {k: v for k, v in weights.items() if k != "model.layers.1.mlp.up_proj.weight"})
    with pytest.raises(InputError, match=r"lacks the tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(source)
    _saved(model, weights | {"model.layers.1.mlp.up_proj.weight": torch.zeros(48, 31)})
    with pytest.raises(InputError, match=r"up_proj\.weight has shape \[48, 31\] where config\.json asks"):
        load_model(source)


@pytest.mark.parametrize("load", [load_model, StreamedModel])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 2**20, "head_dim": 8}, r"embed_tokens\.weight has shape \[257, 32\] where config\.json asks"),
        ({"hidden_size": 2**62}, r"cannot be built from its config\.json: "),
        ({"vocab_size": 2**40}, r"embed_tokens\.weight has shape"),
        ({"num_hidden_layers": 4}, r"lacks the tensor model\.layers\.3\."),
        ({"intermediate_size": 2**50}, r"has shape \[32, 48\]"),
        ({"head_dim": 2**40}, "tables too large"),
        ({"hidden_act": "no-such-function"}, "cannot be built .*no-such-function"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_the_files_is_refused_before_anything_is_allocated(
    model: Path, load: Callable, changes: dict, message: str
):
    config_field(**changes)(model)
    with pytest.raises(InputError, match=message) as caught:
        load(resolve(model))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("load", [load_model, StreamedModel])
def test_a_bare_config_means_the_defaults_of_its_type_and_those_do_not_fit(model: Path, load: Callable):
    (model / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match=r"lacks the tensor model\.layers\.3\.|has shape"):
        load(resolve(model))


@pytest.mark.parametrize("load", [load_model, StreamedModel])
def test_tables_that_no_tensor_bounds_are_refused(tmp_path: Path, load: Callable):
    directory = make_model(tmp_path / "neox", "gpt_neox")
    config_field(head_dim=10**9)(directory)
    with pytest.raises(InputError, match="asks for tables too large"):
        load(resolve(directory))


def test_a_field_that_only_the_making_of_buffers_reads_is_refused_by_its_cause(tmp_path: Path):
    directory = make_model(tmp_path / "gemma", "gemma3")
    config_field(initializer_range=math.nan)(directory)
    with pytest.raises(InputError, match=r"gemma cannot be run: .*std"):
        StreamedModel(resolve(directory))


@pytest.mark.parametrize("load", [load_model, StreamedModel])
def test_layers_without_end_are_refused_while_they_are_made(model: Path, load: Callable, monkeypatch):
    monkeypatch.setattr(models, "_check_counts", lambda *_: None)
    config_field(num_hidden_layers=100_000)(model)
    with pytest.raises(InputError, match="many more parameters than its files hold"):
        load(resolve(model))


@pytest.mark.parametrize("load", [load_model, StreamedModel])
def test_weights_stored_as_integers_are_refused(model: Path, load: Callable):
    weights = {k: v for file in model.glob("*.safetensors") for k, v in load_file(file).items()}
    config_only(model)
    name = "model.layers.1.mlp.up_proj.weight"
    _saved(model, weights | {name: torch.ones(48, 32, dtype=torch.int32)})
    with pytest.raises(InputError, match=rf"tensor {name} holds I32 where the model has floating-point numbers"):
        load(resolve(model))


def test_what_the_library_itself_cannot_read_is_refused(model: Path):
    headed(beyond_the_library)(model)
    edited(model, "model.safetensors.index.json", lambda index: index["weight_map"].update(more=SECOND))
    with pytest.raises(InputError, match=f"{SECOND} cannot be read"):
        StreamedModel(resolve(model)).block_tensors(0)


def test_a_config_that_fits_the_tensors_but_cannot_be_run_is_refused(tmp_path: Path):
    directory = make_model(tmp_path / "phi", "phi")
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 8.0}
    config_field(rope_parameters=rope)(directory)
    with pytest.raises(InputError, match="phi cannot be run"):
        load_model(resolve(directory))


def test_a_config_that_asks_for_other_outputs_still_gives_logits(model: Path):
    config_field(return_dict=False, output_hidden_states="all")(model)
    tokens = torch.arange(5)[None]
    streamed = StreamedModel(resolve(model))
    assert load_model(resolve(model))(input_ids=tokens).logits.shape == (1, 5, 257)
    assert streamed.logits(streamed.embed(tokens)).shape == (1, 5, 257)


def _saved(model: Path, weights: dict[str, torch.Tensor]) -> Path:
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    return model


def test_a_model_without_tokenizer_or_with_a_broken_one_is_refused(model: Path):
    settings = (model / "tokenizer_config.json").read_text()
    edited(model, "tokenizer_config.json", lambda settings: settings.update(model_max_length="long"))
    with pytest.raises(InputError, match=r"the tokenizer in .* cannot be read"):
        load_tokenizer(resolve(model))
    (model / "tokenizer_config.json").write_text(settings)
    (model / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"the tokenizer in .* cannot be read"):
        load_tokenizer(resolve(model))
    (model / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="has no tokenizer"):
        load_tokenizer(resolve(model))


# --- names -------------------------------------------------------------------------------------------------------


def test_every_alias_leads_somewhere():
    assert {"tiny", "smollm2-135m", "llama3-8b"} <= aliases().keys()
    for alias in aliases().values():
        assert len(alias.keys() & {"directory", "asset", "hub"}) == 1
        assert "hub" not in alias or {"gigabytes", "licence"} <= alias.keys()


def test_reading_the_aliases_loads_no_heavy_library():
    script = "import sys, icml25cli.core.models as m; m.aliases(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert not {"torch", "transformers", "huggingface_hub", "numpy", "safetensors", "gguf"} & set(loaded)


def test_a_word_close_to_an_alias_is_answered_with_it():
    with pytest.raises(InputError) as caught:
        resolve("lama3-8b")
    assert caught.value.hint == "did you mean llama3-8b?"
    with pytest.raises(InputError, match="the name of a model is empty"):
        resolve("")
    with pytest.raises(InputError) as caught:
        resolve("zzzz")
    assert "llama3-8b" in (caught.value.hint or "")
    for path in ("./no/such", "/no/such", "~/no-such-model", "no.gguf", "folder/no.gguf", "a/b/c"):
        with pytest.raises(InputError, match="no model is called"):
            resolve(path)


def test_a_path_goes_before_an_alias(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(made, tmp_path / "llama3-8b")
    monkeypatch.chdir(tmp_path)
    assert resolve("llama3-8b").config["hidden_size"] == 32


def test_a_gated_alias_says_exactly_what_is_missing_without_asking_the_hub(monkeypatch: pytest.MonkeyPatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", None)
    with pytest.raises(MissingError) as caught:
        resolve("llama3-8b")
    for fact in ("llama3-8b", "meta-llama/Meta-Llama-3-8B", "16.1 GB", "Meta Llama 3 Community License", "gated"):
        assert fact in caught.value.message
    for way in ("https://huggingface.co/meta-llama/Meta-Llama-3-8B", "hf auth login", "--allow-download"):
        assert way in (caught.value.hint or "")


def test_an_asset_that_is_not_fetched_names_its_command():
    with pytest.raises(MissingError) as caught:
        resolve("smollm2-135m")
    assert "icml25 assets fetch smollm2-135m" in (caught.value.hint or "")


def test_the_builtin_model_absent_from_an_installation_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "_shipped", lambda name: tmp_path / "nowhere")
    with pytest.raises(MissingError, match="built-in model tiny"):
        resolve("tiny")


def test_devices():
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for wrong in ("gpu", "cuda:99", "meta", "hpu", ""):
        with pytest.raises(UsageError, match=f"no device {wrong}"):
            pick_device(wrong)


# --- hub ---------------------------------------------------------------------------------------------------------


class Hub:
    """What the server gives out: repositories as directories, each with the facts the hub tells of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repositories: dict[str, tuple[Path, dict]] = {}
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                path = self.path.partition("?")[0].strip("/")
                for name, (directory, facts) in hub.repositories.items():
                    if facts.get("gated") and name in path and not path.startswith("api"):
                        return self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
                    if path.startswith(f"api/models/{name}/tree/"):
                        files = [
                            {"type": "file", "path": f["rfilename"], **f, "oid": "0"} for f in hub.files(directory)
                        ]
                        return self.answer(200, json.dumps(files).encode())
                    if path.startswith(f"api/models/{name}"):
                        info = {"id": name, "sha": "1" * 40, "siblings": hub.files(directory), **facts}
                        return self.answer(200, json.dumps(info).encode())
                    if path.startswith(f"{name}/resolve/"):
                        file = directory / path.rpartition("/")[2]
                        hub.fetched += [file.name] * (self.command == "GET")
                        headers = {"ETag": f'"{file.name}"', "X-Repo-Commit": "1" * 40}
                        return self.answer(200, file.read_bytes(), headers)
                return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

            def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

        from huggingface_hub import constants

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        address = f"http://127.0.0.1:{self.server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def files(directory: Path) -> list[dict]:
        return [{"rfilename": file.name, "size": file.stat().st_size} for file in sorted(directory.iterdir())]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    served = Hub(monkeypatch)
    yield served
    served.server.shutdown()
    served.server.server_close()


def test_a_small_model_is_fetched_once_and_then_found_without_the_hub(hub: Hub, model: Path):
    (model / "consolidated.safetensors").write_bytes(b"the same weights again")
    (model / "modeling.py").write_text("code of theirs")
    hub.repositories["org/small"] = (model, {"cardData": {"license": "mit"}})
    source = resolve("org/small")
    assert source.name == "org/small"
    assert load_model(source).config.vocab_size == 257
    assert load_tokenizer(source)("a").input_ids
    assert "model-00001-of-00004.safetensors" in hub.fetched
    assert not {"consolidated.safetensors", "modeling.py"} & set(hub.fetched)
    hub.repositories.clear()
    assert resolve("org/small").path == source.path


def test_a_snapshot_with_a_file_gone_is_not_taken_for_the_model(hub: Hub, model: Path):
    hub.repositories["org/small"] = (model, {})
    shard = resolve("org/small").path / "model-00003-of-00004.safetensors"
    shard.unlink()
    assert resolve("org/small").path == shard.parent
    assert shard.exists()
    shard.unlink()
    hub.repositories.clear()
    with pytest.raises(MissingError):
        resolve("org/small")


def test_a_large_model_needs_permission_and_says_what_it_would_cost(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch
):
    hub.repositories["org/large"] = (model, {"cardData": {"license": "apache-2.0"}})
    monkeypatch.setattr(models, "FREE_DOWNLOAD", 1000)
    with pytest.raises(MissingError, match=r"org/large .* download of 0 MB, apache-2.0") as caught:
        resolve("org/large")
    assert "--allow-download" in (caught.value.hint or "")
    assert not hub.fetched
    assert resolve("org/large", allow_download=True).config["hidden_size"] == 32


def test_a_gated_or_unknown_or_weightless_model_is_missing(hub: Hub, model: Path):
    hub.repositories["org/gated"] = (model, {"gated": "manual"})
    with pytest.raises(MissingError, match="org/gated is gated") as caught:
        resolve("org/gated", allow_download=True)
    assert "hf auth login" in (caught.value.hint or "")
    with pytest.raises(MissingError, match="org/nothing is no path here, and the hub knows no such model"):
        resolve("org/nothing", allow_download=True)
    config_only(model)
    hub.repositories["org/weightless"] = (model, {})
    with pytest.raises(MissingError, match="no safetensors weights"):
        resolve("org/weightless")


def test_a_hub_out_of_reach_is_missing_and_says_what_to_run_elsewhere(monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import constants

    with pytest.raises(MissingError, match="the hub cannot be reached") as caught:
        resolve("org/name")
    assert "hf download org/name" in (caught.value.hint or "")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingError, match="HF_HUB_OFFLINE is set"):
        resolve("llama3-8b", allow_download=True)


# --- GGUF --------------------------------------------------------------------------------------------------------


def test_a_gguf_file_is_converted_once_to_the_values_it_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    values = make_gguf(tmp_path / "small.gguf")
    source = resolve(tmp_path / "small.gguf")
    assert source.name == str(tmp_path / "small.gguf")
    assert "dequantised GGUF (Q4_0)" in source.notes[0]
    assert "4-bit grid" in source.notes[0]
    assert "quantization_config" not in source.config
    model = load_model(source)
    for ours, theirs in {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight",
        "model.layers.0.self_attn.v_proj.weight": "blk.0.attn_v.weight",
        "model.layers.0.input_layernorm.weight": "blk.0.attn_norm.weight",
        "lm_head.weight": "output.weight",
    }.items():
        np.testing.assert_array_equal(model.get_parameter(ours).detach().numpy(), values[theirs])
    assert load_tokenizer(source).decode(load_tokenizer(source)("to be").input_ids) == "to be"

    monkeypatch.setattr(gguf_cache, "_write", None)  # a second conversion would fail
    shutil.copy(tmp_path / "small.gguf", tmp_path / "copy.gguf")
    assert resolve(tmp_path / "copy.gguf").path == source.path


def test_two_that_want_the_same_gguf_file_convert_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_gguf(tmp_path / "small.gguf")
    write, both_parsed, written = gguf_cache._write, threading.Barrier(2), []
    parse = gguf_cache.storage_types
    monkeypatch.setattr(gguf_cache, "storage_types", lambda file: (parse(file), both_parsed.wait(60))[0])
    monkeypatch.setattr(gguf_cache, "_write", lambda *args: (written.append(args), write(*args)))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(gguf_cache.convert, [tmp_path / "small.gguf"] * 2)
    assert one == other
    assert len(written) == 1


def test_a_gguf_file_of_floats_is_not_said_to_lie_on_a_grid(tmp_path: Path):
    make_gguf(tmp_path / "float.gguf", quantised=False)
    (note,) = resolve(tmp_path / "float.gguf").notes
    assert "F32" in note
    assert "grid" not in note


@pytest.mark.parametrize("kept", [0, 3, 20, 1000, 0.5, -1])
def test_a_gguf_file_cut_anywhere_is_refused(tmp_path: Path, kept: float):
    file = tmp_path / "cut.gguf"
    make_gguf(file)
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(InputError, match=r"cut\.gguf is cut short or is not a GGUF file"):
        resolve(file)
    assert not list((tmp_path / "cache" / "gguf").glob("*/"))


def test_a_gguf_header_that_promises_endless_values_is_refused(tmp_path: Path):
    file = tmp_path / "liar.gguf"
    make_gguf(file)
    content = file.read_bytes()
    key = b"tokenizer.ggml.token_type"
    length = content.index(key) + len(key) + 4 + 4  # after the type of the value and the type of its items
    file.write_bytes(content[:length] + (2**60).to_bytes(8, "little") + content[length + 8 :])
    with pytest.raises(InputError, match="points beyond the end"):
        resolve(file)


def test_a_gguf_file_of_an_unknown_architecture_or_without_a_tensor_is_refused(tmp_path: Path):
    file = tmp_path / "strange.gguf"
    writer = gguf.GGUFWriter(file, "no-such-model")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match=r"strange.gguf cannot be read by transformers: .*no-such-model"):
        resolve(file)


def test_other_files_are_no_models(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match=r"notes\.txt is a file, but not a \.gguf file"):
        resolve(tmp_path / "notes.txt")


def test_a_folder_with_a_gguf_file_says_to_name_the_file(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    make_gguf(tmp_path / "folder" / "small.gguf")
    with pytest.raises(InputError) as caught:
        resolve(tmp_path / "folder")
    assert str(tmp_path / "folder" / "small.gguf") in (caught.value.hint or "")
