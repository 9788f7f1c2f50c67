"""Weights read with NumPy alone, against what torch reads and what a network does with them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import tiny
import torch
import transformers
from fake_hub import NAME, Files, put

from cls_analysis import Encoder
from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.errors import LoadingError
from cls_analysis.weights import LayerNorm, Weights, layer_norms


def find(name):
    return find_checkpoint(name, None, trust_remote_code=False)


def norms_of(folder):
    return layer_norms(find(folder))


def refused(match, folder, work=layer_norms):
    """The one-line message with which a folder is refused."""
    with pytest.raises(LoadingError, match=match) as caught:
        work(find(folder))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def random_model(name, **options):
    """A tiny network whose norms differ from each other: fresh ones are all ones and zeros."""
    model = tiny.make_model(name, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0, 0.3)
    return model


def save(model, folder):
    model.save_pretrained(folder)
    return folder


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder, change):
    path = folder / "model.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path, metadata={"format": "pt"})


def rename(old, new):
    return lambda weights: {name.replace(old, new): tensor for name, tensor in weights.items()}


@pytest.fixture(scope="session")
def random_folder(tmp_path_factory):
    """Gives the folder of a network with random norms by the name of its architecture."""
    root = tmp_path_factory.mktemp("random")
    made = {}

    def folder(name):
        if name not in made:
            made[name] = save(random_model(name), root / name)
        return made[name]

    return folder


@pytest.fixture
def folder(random_folder, tmp_path):
    """A copy of the tiny BERT to break."""
    return Path(shutil.copytree(random_folder("bert"), tmp_path / "broken"))


def same(norm, module):
    """Whether a LayerNorm holds a module's numbers, to the last bit."""
    parts = [(norm.weight, module.weight), (norm.bias, getattr(module, "bias", None))]
    return all(
        (array is None) == (tensor is None)
        and (array is None or (array.dtype == np.float64 and np.array_equal(array, tensor.detach().double().numpy())))
        for array, tensor in parts
    )


# -- tensors ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tensors(folder):
    """Writes tensors as the folder's weights and gives what is read of them."""

    def write_and_read(**tensors):
        edit_weights(folder, lambda weights: tensors)
        return Weights.of(find(folder)).read(tensors)

    return write_and_read


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_each_dtype_reads_as_torch_reads_it(tensors, dtype):
    torch.manual_seed(0)
    wanted = {"a.odd": torch.randn(3, 5).to(dtype), "b": torch.randn(7).to(dtype) * 1e-3, "c": torch.ones(2, 0)}
    got = tensors(**wanted)
    for name, tensor in wanted.items():
        assert got[name].dtype == np.float64
        assert np.array_equal(got[name], tensor.double().numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_two_bytes(tensors, dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    got = tensors(every=every)["every"]
    assert np.array_equal(got, every.double().numpy(), equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(every.double().numpy()))


def test_a_tensor_at_an_odd_place(folder):
    """Bytes of others may stand before it."""
    header = {
        "flags": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]},
    }
    data = json.dumps(header).encode()
    values = np.array([1.5, -2.25], dtype="<f4")
    (folder / "model.safetensors").write_bytes(len(data).to_bytes(8, "little") + data + b"abc" + values.tobytes())
    assert Weights.of(find(folder)).read(["w"])["w"].tolist() == [1.5, -2.25]


def test_whole_numbers_are_refused_only_if_they_are_asked_for(folder):
    edit_weights(folder, lambda weights: weights | {"position_ids": torch.arange(4)})
    weights = Weights.of(find(folder))
    assert len(weights.read(name for name in weights.files if name != "position_ids")) == 55
    with pytest.raises(LoadingError, match=r"^broken: position_ids is stored as I64; expected one of F64, F32"):
        weights.read(["position_ids"])
    with pytest.raises(LoadingError, match=r"^broken: the checkpoint has no tensor nothing"):
        weights.read(["nothing"])


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path):
    """The tiny BERT in several files, and in one."""
    model = random_model("bert")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="40KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    return tmp_path / "sharded", save(model, tmp_path / "one")


def test_several_files_give_what_one_gives(sharded):
    several, one = (Weights.of(find(folder)) for folder in sharded)
    assert set(several.files) == set(one.files)
    expected = one.read(one.files)
    for name, array in several.read(several.files).items():
        assert np.array_equal(array, expected[name])


def test_one_of_several_files_is_missing(sharded):
    holder = Weights.of(find(sharded[0])).files["encoder.layer.2.output.LayerNorm.weight"]
    (sharded[0] / holder).unlink()
    refused(f"^sharded: {holder} is missing", sharded[0])


def test_an_index_that_points_elsewhere(sharded):
    index = sharded[0] / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    name = "encoder.layer.0.output.LayerNorm.weight"
    files = sorted(set(values["weight_map"].values()))
    other = next(file for file in files if file != values["weight_map"][name])
    index.write_text(json.dumps(values | {"weight_map": values["weight_map"] | {name: other}}))
    refused(f"^sharded: {other} lacks the tensor {name}", sharded[0])
    index.write_text(json.dumps(values | {"weight_map": values["weight_map"] | {name: "../one/model.safetensors"}}))
    refused("^sharded: ../one/model.safetensors is missing", sharded[0])
    index.write_text(json.dumps({"weight_map": [1]}))
    refused("^sharded: model.safetensors.index.json holds no weight_map", sharded[0])


@pytest.mark.parametrize("name", ["other.safetensors", "inner/other.safetensors"])
def test_a_configuration_may_name_another_file_as_it_may_for_transformers(folder, name):
    expected = norms_of(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / name)
    refused("^broken: the folder holds no model.safetensors", folder)
    edit_config(folder, transformers_weights=name)
    assert [norm.weight.tolist() for norm in norms_of(folder)] == [norm.weight.tolist() for norm in expected]
    model = transformers.AutoModel.from_pretrained(folder)
    assert same(norms_of(folder)[0], model.encoder.layer[0].output.LayerNorm)


@pytest.mark.parametrize("name", ["pytorch_model.bin", 3])
def test_a_configuration_may_not_name_a_pickled_file(folder, name):
    edit_config(folder, transformers_weights=name)
    refused("^broken: config.json names the weights .*expected a safetensors file", folder)


@pytest.mark.parametrize("size", [0, 7, 1000, -1])
def test_damaged_weights(folder, size):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:size])
    refused("^broken: model.safetensors is damaged", folder)


@pytest.mark.parametrize("pickled", [True, False])
def test_case_46_weights_that_may_not_be_read_are_refused_in_the_words_of_the_encoder(tiny_folder, tmp_path, pickled):
    folder = Path(shutil.copytree(tiny_folder("bert"), tmp_path / "broken"))
    if pickled:
        torch.save(safetensors.torch.load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    message = refused("^broken: only pickled weights" if pickled else "^broken: the folder holds no", folder)
    with pytest.raises(LoadingError) as caught:
        Encoder.from_pretrained(folder, device="cpu")
    assert str(caught.value) == message


# -- the hub ---------------------------------------------------------------------------------------------------------


def test_a_cached_model_asks_nobody(hub, hub_cache, random_folder):
    put(hub_cache, random_folder("bert"))
    assert [norm.layer for norm in norms_of(NAME)] == [1, 2, 3]
    assert hub.calls == []


@pytest.mark.parametrize("kept", [(), ("config.json",)], ids=["nothing", "configuration"])
def test_what_is_not_cached_is_fetched_without_the_rest(hub, hub_cache, tiny_folder, monkeypatch, kept):
    files = Files(tiny_folder("bert"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", files)
    put(hub_cache, tiny_folder("bert"), names=kept)
    assert [norm.layer for norm in norms_of(NAME)] == [1, 2, 3]
    assert len(hub.calls) == 1
    assert set(files.given) <= {"config.json", "model.safetensors"}
    assert "model.safetensors" in files.given


def test_several_files_of_the_hub(hub, hub_cache, sharded, monkeypatch):
    files = Files(sharded[0])
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", files)
    for one, other in zip(norms_of(NAME), norms_of(sharded[1]), strict=True):
        assert np.array_equal(one.weight, other.weight)
    assert len(hub.calls) == 1


def test_pickled_weights_of_the_hub(hub, hub_cache, folder, monkeypatch):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    files = Files(folder)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", files)
    refused(f"^{NAME}: no safetensors weights, and pickled ones can run code", NAME)
    assert files.given == ["config.json"]


# -- layer norms -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def norms_by_running(folder):
    """For each layer the norm that gives its vectors, else the first that takes them; found by watching a pass.

    No name is looked at: the outside truth for ours.
    """
    model = transformers.AutoModel.from_pretrained(folder)
    model = model.get_encoder() if model.config.model_type == "t5" else model
    if model.config.model_type == "big_bird":
        model.set_attention_type("original_full")
    model.eval()
    passed = []

    def watch(module, inputs, output):
        passed.append((module, inputs[0].reshape(-1, tiny.HIDDEN), output.reshape(-1, tiny.HIDDEN)))

    for module in model.modules():
        weight = getattr(module, "weight", None)
        if "Norm" in type(module).__name__ and weight is not None and weight.shape == (tiny.HIDDEN,):
            module.register_forward_hook(watch)
    ids = torch.arange(6, 14)[None]
    output = model(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    found = []
    for state in [*output.hidden_states[1:-1], output.last_hidden_state]:
        vectors = state.reshape(-1, tiny.HIDDEN)
        giving = [module for module, _, after in passed if torch.equal(after, vectors)]
        taking = [module for module, before, _ in passed if torch.equal(before, vectors)]
        found.append((giving[-1], True) if giving else (taking[0], False))
    return found


def assert_as_run(folder):
    """Our norms, each as often as it is used, are those that a pass through the network meets."""
    ours = [norm for norm in norms_of(folder) for _ in range(norm.uses)]
    met = norms_by_running(folder)
    assert len(ours) == len(met)
    for norm, (module, on_output) in zip(ours, met, strict=True):
        assert norm.on_output is on_output
        assert same(norm, module)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_every_architecture(random_folder, name):
    folder = random_folder(name)
    norms = norms_of(folder)
    assert [norm.layer for norm in norms] == ([1] if name == "albert" else [1, 2, 3])
    assert [norm.uses for norm in norms] == ([3] if name == "albert" else [1, 1, 1])
    assert {norm.weight.shape for norm in norms} == {(tiny.HIDDEN,)}
    pre_norm = name in ("modernbert", "gpt2", "t5")
    assert [norm.on_output for norm in norms] == ([False, False, True] if pre_norm else [True] * len(norms))
    assert all((norm.bias is None) == (name in ("modernbert", "t5")) for norm in norms)
    assert_as_run(folder)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bert", "encoder.layer.{}.output.LayerNorm"),
        ("roberta", "encoder.layer.{}.output.LayerNorm"),
        ("electra", "encoder.layer.{}.output.LayerNorm"),
        ("deberta", "encoder.layer.{}.output.LayerNorm"),
        ("big_bird", "encoder.layer.{}.output.LayerNorm"),
        ("longformer", "encoder.layer.{}.output.LayerNorm"),
        ("distilbert", "transformer.layer.{}.output_layer_norm"),
        ("xlnet", "layer.{}.ff.layer_norm"),
    ],
)
def test_the_modules_by_name(random_folder, name, path):
    model = transformers.AutoModel.from_pretrained(random_folder(name))
    for number, norm in enumerate(norms_of(random_folder(name))):
        assert (norm.layer, norm.key) == (number + 1, path.format(number))
        assert same(norm, model.get_submodule(norm.key))


def test_the_convolution_of_deberta_comes_behind_the_first_block(random_folder, tmp_path):
    assert [norm.key for norm in norms_of(random_folder("deberta-v2"))] == [
        "encoder.conv.LayerNorm",
        "encoder.layer.1.output.LayerNorm",
        "encoder.layer.2.output.LayerNorm",
    ]
    folder = save(random_model("deberta-v2", conv_kernel_size=0), tmp_path / "plain")
    assert norms_of(folder)[0].key == "encoder.layer.0.output.LayerNorm"
    assert_as_run(folder)


@pytest.mark.parametrize(
    ("layers", "groups", "expected"),
    [
        (12, 1, [(1, 12)]),
        (4, 2, [(1, 2), (3, 2)]),
        (5, 2, [(1, 3), (4, 2)]),
        (3, 3, [(1, 1), (2, 1), (3, 1)]),
    ],
)
def test_a_shared_block_is_given_once(tmp_path, layers, groups, expected):
    model = random_model("albert", num_hidden_layers=layers, num_hidden_groups=groups)
    folder = save(model, tmp_path / "albert")
    norms = norms_of(folder)
    assert [(norm.layer, norm.uses) for norm in norms] == expected
    assert_as_run(folder)


@pytest.mark.parametrize(
    ("name", "kind", "prefix"),
    [
        ("bert", "BertForMaskedLM", "bert."),
        ("roberta", "RobertaForSequenceClassification", "roberta."),
        ("albert", "AlbertForMaskedLM", "albert."),
        ("distilbert", "DistilBertForMaskedLM", "distilbert."),
        ("electra", "ElectraForPreTraining", "electra."),
        ("deberta-v2", "DebertaV2ForMaskedLM", "deberta."),
        ("xlnet", "XLNetLMHeadModel", "transformer."),
        ("modernbert", "ModernBertForMaskedLM", "model."),
        ("longformer", "LongformerForMaskedLM", "longformer."),
        ("big_bird", "BigBirdForMaskedLM", "bert."),
        ("gpt2", "GPT2LMHeadModel", "transformer."),
        ("t5", "T5ForConditionalGeneration", ""),
        ("t5", "T5EncoderModel", ""),
    ],
)
def test_a_checkpoint_with_a_head(tmp_path, name, kind, prefix):
    """Heads have norms of their own; none is taken for a block's."""
    folder = save(random_model(name, kind=kind), tmp_path / "head")
    assert all(norm.key.startswith(prefix) for norm in norms_of(folder))
    assert_as_run(folder)


def test_mpnet(tmp_path):
    config = transformers.MPNetConfig(vocab_size=40, **tiny.SIZES)
    folder = save(transformers.MPNetModel(config), tmp_path / "mpnet")
    edit_weights(folder, lambda weights: {name: torch.rand_like(tensor) for name, tensor in weights.items()})
    assert_as_run(folder)


def test_old_names(folder):
    expected = norms_of(folder)
    edit_weights(folder, rename("LayerNorm.weight", "LayerNorm.gamma"))
    edit_weights(folder, rename("LayerNorm.bias", "LayerNorm.beta"))
    for norm, wanted in zip(norms_of(folder), expected, strict=True):
        assert norm.key == wanted.key
        assert np.array_equal(norm.weight, wanted.weight)
        assert np.array_equal(norm.bias, wanted.bias)
    assert_as_run(folder)


def test_a_decoder_and_its_cross_attention_are_left_out(tmp_path):
    encoder = random_model("bert")
    decoder = random_model("bert", kind="BertLMHeadModel", seed=1, is_decoder=True, add_cross_attention=True)
    both = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder)
    folder = save(both, tmp_path / "both")
    for number, norm in enumerate(norms_of(folder)):
        assert norm.key == f"encoder.encoder.layer.{number}.output.LayerNorm"
        assert same(norm, encoder.encoder.layer[number].output.LayerNorm)


def test_layers_that_the_configuration_leaves_out(folder):
    """The network is built as config.json says; what the file holds beyond that is not run."""
    edit_config(folder, num_hidden_layers=2)
    assert [norm.layer for norm in norms_of(folder)] == [1, 2]
    assert_as_run(folder)


def test_layers_are_counted_where_the_configuration_is_silent(folder):
    path = folder / "config.json"
    silent = {key: value for key, value in json.loads(path.read_text()).items() if key != "num_hidden_layers"}
    path.write_text(json.dumps(silent))
    assert [norm.layer for norm in norms_of(folder)] == [1, 2, 3]


def test_layers_come_in_the_order_of_their_numbers(tmp_path):
    folder = save(random_model("bert", num_hidden_layers=11), tmp_path / "deep")
    assert [norm.key.split(".")[2] for norm in norms_of(folder)] == [str(number) for number in range(11)]


# -- what is wrong ---------------------------------------------------------------------------------------------------


def test_an_unknown_architecture(tmp_path):
    config = transformers.ViTConfig(**tiny.SIZES, image_size=8, patch_size=4)
    folder = save(transformers.ViTModel(config), tmp_path / "vit")
    message = refused("^vit: no LayerNorm behind the blocks of this vit by a known name", folder)
    assert "encoder.layer.{n}.output.LayerNorm" in message
    assert "--data" in message


def test_post_norm_blocks_without_a_final_norm_are_not_taken_for_pre_norm_ones(random_folder, tmp_path):
    """OpenAI's first GPT names its norms as GPT-2 does and puts them behind."""
    folder = Path(shutil.copytree(random_folder("gpt2"), tmp_path / "gpt"))
    edit_weights(folder, lambda weights: {name: w for name, w in weights.items() if not name.startswith("ln_f")})
    refused("^gpt: no LayerNorm", folder)


@pytest.mark.parametrize("change", [{"pre_norm": True}, {"inner_group_num": 2}])
def test_a_configuration_in_which_the_names_mean_something_else(folder, change):
    edit_config(folder, **change)
    refused("^broken: no LayerNorm", folder)


def test_a_norm_narrower_than_the_vectors(tmp_path):
    """MobileBERT's blocks go on behind it."""
    sizes = {"intra_bottleneck_size": 16, "embedding_size": 16}
    config = transformers.MobileBertConfig(vocab_size=40, **tiny.SIZES, **sizes)
    folder = save(transformers.MobileBertModel(config), tmp_path / "mobilebert")
    refused(r"^mobilebert: encoder.layer.0.output.LayerNorm has shape \(16,\), expected \(32,\).*--data", folder)


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_norms_of_other_shapes(folder, part):
    name = f"encoder.layer.1.output.LayerNorm.{part}"
    edit_weights(folder, lambda weights: weights | {name: torch.ones(2, 16)})
    refused(r"^broken: encoder.layer.1.output.LayerNorm has shape \(2, 16\)", folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(folder, value):
    name = "encoder.layer.1.output.LayerNorm.bias"
    edit_weights(folder, lambda weights: weights | {name: torch.full((tiny.HIDDEN,), value)})
    refused("^broken: encoder.layer.1.output.LayerNorm holds values that are not finite", folder)


def test_a_layer_without_its_norm(folder):
    edit_weights(folder, lambda weights: {k: v for k, v in weights.items() if "layer.1.output.LayerNorm" not in k})
    refused(r"^broken: the checkpoint lacks the LayerNorms of 1 of its 3 layers \(layer 2 first\)", folder)


def test_several_encoders_in_one_checkpoint(folder):
    edit_weights(folder, lambda weights: weights | {f"other.{name}": w.clone() for name, w in weights.items()})
    refused("^broken: holds several encoders", folder)


# -- the embedded encoder --------------------------------------------------------------------------------------------


def test_the_embedded_encoder(embedded):
    norms = norms_of("embedded")
    assert [norm.layer for norm in norms] == [1, 2, 3, 4, 5, 6]
    for norm, block in zip(norms, embedded.model.encoder.layer, strict=True):
        assert isinstance(norm, LayerNorm)
        assert norm.weight.shape == norm.bias.shape == (384,)
        assert same(norm, block.output.LayerNorm)


def test_reading_weights_loads_neither_torch_nor_transformers():
    code = """
import sys
from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.weights import layer_norms
assert len(layer_norms(find_checkpoint("embedded", None, trust_remote_code=False))) == 6
print(sorted({"torch", "transformers", "sentence_transformers", "pandas", "scipy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
