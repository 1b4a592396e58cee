"""Plans as files: written, edited, read, and refused where they do not fit."""

import json
from dataclasses import replace

import pytest

from icml25cli.core.errors import InputError
from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import examine
from icml25cli.papers.prune.methods import Options, read_options, write_options
from icml25cli.papers.prune.plan import (
    Layer,
    Plan,
    check_plan,
    dense_layer,
    make_plan,
    plan_text,
    read_plan,
    removed_layer,
    write_plan,
)
from tests.make_models import make_model


@pytest.fixture
def llama(streamed):
    model = streamed("llama")
    return model.source, examine(model)


@pytest.fixture
def plan(llama) -> Plan:
    source, anatomy = llama
    options = write_options(Options(target=0.3, protect=(0, 2)))
    cut = Layer(1, 0.93, 0.25, (0, 2, 3), (0, 1, 1), tuple(range(8, 48)))
    return make_plan(source, anatomy, options, [dense_layer(anatomy, 0, 0.125), cut, removed_layer(2, 0.5)])


def test_what_is_written_is_read(plan, tmp_path, llama):
    write_plan(tmp_path / "plan.json", plan)
    again = read_plan(tmp_path / "plan.json")
    assert again == plan
    check_plan(again, *llama)
    assert read_options(again.options) == Options(target=0.3, protect=(0, 2))
    assert plan_text(again) == (tmp_path / "plan.json").read_text()


def test_a_person_can_edit_it(plan, tmp_path, llama):
    lines = plan_text(plan).splitlines()
    (line,) = [i for i, text in enumerate(lines) if '"heads": [0, 2, 3]' in text]
    lines[line] = lines[line].replace("[0, 2, 3]", "[1, 2, 3]")
    (tmp_path / "plan.json").write_text("\n".join(lines))
    edited = read_plan(tmp_path / "plan.json")
    assert edited.layers[1].heads == (1, 2, 3)
    check_plan(edited, *llama)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protect", "a"),
        ("protect", ["a"]),
        ("protect", [1.5]),
        ("protect", [-1]),
        ("protect", [True]),
        ("seed", "a"),
        ("seed", -1),
        ("seed", 1.5),
        ("target", None),
        ("target", True),
        ("target", float("nan")),
        ("alpha", "sharp"),
        ("alike", "no"),
        ("method", 3),
        ("multiple_of", 10**30),
        ("protected", []),
    ],
)
def test_an_option_of_another_type_or_range_is_named(name, value):
    with pytest.raises(InputError, match="the plan's options") as caught:
        read_options(write_options(Options()) | {name: value})
    assert name.replace("_", "-") in str(caught.value).replace("_", "-")


def test_a_protected_layer_has_to_be_there(plan, llama):
    with pytest.raises(InputError, match="protect names layer 99"):
        check_plan(replace(plan, options=plan.options | {"protect": [99]}), *llama)


def test_what_is_no_number_is_not_written(plan):
    with pytest.raises(ValueError, match="not JSON compliant"):
        plan_text(replace(plan, layers=(replace(plan.layers[0], cosine=float("nan")),)))


def test_an_unknown_field_of_a_layer_is_refused(plan, tmp_path):
    found = json.loads(plan_text(plan))
    found["layers"][1]["chanels"] = []
    (tmp_path / "plan.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"layers\[1\] has a field chanels"):
        read_plan(tmp_path / "plan.json")


def test_another_model_s_plan_is_refused(plan, tmp_path):
    other = resolve(make_model(tmp_path / "other", "llama", rope_theta=5000.0))
    with pytest.raises(InputError, match=r"the plan is for .*llama, and .*other has another config\.json"):
        check_plan(plan, other, examine(StreamedModel(other)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"heads": (0, 2, 4)}, "keeps head 4, and there are 0 to 3"),
        ({"heads": (2, 0, 3)}, "keeps head 0 after 2, and they have to ascend"),
        ({"heads": (-1, 2, 3)}, "keeps head -1"),
        ({"heads": ()}, "keeps no heads"),
        ({"kv": ()}, "has 3 heads for 0 key-value heads"),
        ({"kv": (0, 1)}, "has 3 heads for 2 key-value heads"),
        ({"kv": (0, 0, 1)}, "lets head 2 read key-value head 0, not 1"),
        ({"channels": ()}, "keeps no channels"),
        ({"channels": (3, 3)}, "keeps channel 3 after 3"),
        ({"channels": (47, 48)}, "keeps channel 48, and there are 0 to 47"),
        ({"channels": (10**400,)}, "keeps channel 1000"),
        ({"kv": (0, 1, 2)}, "keeps key-value head 2, and there are 0 to 1"),
        ({"cosine": float("nan")}, "has a cosine of nan"),
        ({"cosine": 10**400}, "has a cosine of 1000"),
        ({"ratio": float("inf")}, "has a ratio of inf"),
        ({"ratio": -0.5}, "has a ratio of -0.5"),
        ({"removed": True}, "is removed, and keeps something"),
    ],
)
def test_a_layer_that_cannot_be_built_is_named(plan, llama, change, says):
    bad = replace(plan, layers=(plan.layers[0], replace(plan.layers[1], **change), plan.layers[2]))
    with pytest.raises(InputError, match=f"layer 1 of the plan {says}"):
        check_plan(bad, *llama)


def test_layers_missing_twice_or_all_removed(plan, llama):
    for layers in (plan.layers[:2], (*plan.layers[:2], plan.layers[1])):
        with pytest.raises(InputError, match="does not name the layers 0 to 2 in order"):
            check_plan(replace(plan, layers=layers), *llama)
    with pytest.raises(InputError, match="removes every layer"):
        check_plan(replace(plan, layers=tuple(removed_layer(i) for i in range(3))), *llama)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "the whole is missing or of another type"),
        ('{"schema": 3}', "the field schema is missing"),
    ],
)
def test_a_file_that_is_no_plan(tmp_path, text, says):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match=f"plan.json.*{says}"):
        read_plan(tmp_path / "plan.json")


def test_a_plan_of_another_schema_or_form(plan, tmp_path):
    content = json.loads(plan_text(plan))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**content, "schema": "icml25/prune-plan/9"}))
    with pytest.raises(InputError, match="is icml25/prune-plan/9, not icml25/prune-plan/1"):
        read_plan(path)
    content["layers"][1]["heads"] = [0, "2"]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"the field layers\[1\].heads\[1\]"):
        read_plan(path)
    with pytest.raises(InputError, match="cannot be read: no such file"):
        read_plan(tmp_path / "absent.json")


def test_gpt2_cannot_share_key_value_heads(streamed):
    model = streamed("gpt2")
    anatomy = examine(model)
    shared = Layer(1, 0.0, 0.0, (0, 1), (0,), tuple(range(128)))
    plan = make_plan(model.source, anatomy, {}, [dense_layer(anatomy, 0), shared, dense_layer(anatomy, 2)])
    with pytest.raises(InputError, match="layer 1 of the plan shares key-value heads, which this family cannot"):
        check_plan(plan, model.source, anatomy)


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ({"metod": "slimllm"}, "a field metod, which is none"),
        ({"method": "slim"}, "--method slim is none of slimllm"),
        ({"target": "much"}, "target cannot be"),
        ({"protect": 3}, "protect cannot be 3"),
    ],
)
def test_options_of_a_plan_that_are_none(stored, says):
    with pytest.raises(InputError, match=says):
        read_options(stored)
