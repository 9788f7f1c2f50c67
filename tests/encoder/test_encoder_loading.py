"""Loading folders: what is wrong is said in one line; what loads is float32, trained, and quiet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import tiny
import torch
import transformers

from cls_analysis import Encoder
from cls_analysis.errors import ClsAnalysisError, LoadingError
from cls_analysis.provenance import hash_arrays

log = transformers.utils.logging


def load(folder, **options):
    return Encoder.from_pretrained(folder, device="cpu", **options)


def refused(folder, match, **options):
    """The one-line message with which a folder is refused."""
    with pytest.raises(LoadingError, match=match) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def rows_of(encoder, layers=-1):
    return encoder.cls_rows(encoder.collate(encoder.tokenize(["a b c"]), [0]), layers)


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy of the tiny BERT to break."""
    return Path(shutil.copytree(tiny_folder("bert"), tmp_path / "broken"))


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder, change):
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file(change(weights), path, metadata={"format": "pt"})


# -- what is wrong ---------------------------------------------------------------------------------------------------


def test_no_such_folder(tmp_path):
    refused(tmp_path / "nowhere", "no such folder")
    refused("./nowhere", "no such folder")
    refused("a/b/c", "no such folder")
    refused("not a name!", "not a hub name and no such folder")


def test_a_folder_without_config(folder):
    (folder / "config.json").unlink()
    refused(folder, "broken: the folder holds no config.json")


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "^broken: the folder holds no model.safetensors")


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta-v2", "xlnet", "big_bird", "gpt2", "t5"])
def test_a_folder_without_a_tokenizer(tiny_folder, tmp_path, name):
    """transformers makes up one that knows no word: every text of one length would be the same text."""
    folder = Path(shutil.copytree(tiny_folder(name), tmp_path / "broken"))
    for path in folder.glob("tokenizer*"):
        path.unlink()
    refused(folder, "^broken: .*tokenizer", source=tiny.ARCHITECTURES[name].source)


def test_case_46_pickled_weights_are_refused(folder):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    refused(folder, r"^broken: only pickled weights \(pytorch_model.bin\).*safetensors")


@pytest.mark.parametrize("size", [0, 7, 1000])
def test_corrupt_weights(folder, size):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:size])
    refused(folder, "^broken: ")


def test_corrupt_config(folder):
    (folder / "config.json").write_text("{")
    refused(folder, "^broken: .*JSON")


def test_missing_weights_are_never_random(folder):
    edit_weights(folder, lambda weights: {k: v for k, v in weights.items() if "layer.1.output.dense" not in k})
    message = refused(folder, r"^broken: the checkpoint lacks 2 of the model's weights .*random")
    assert "encoder.layer.1.output.dense.bias" in message


def test_weights_of_other_shapes(folder):
    edit_config(folder, intermediate_size=40)
    refused(folder, "^broken: the weights do not fit the configuration")


def test_an_unknown_architecture(folder):
    edit_config(folder, model_type="bertt", architectures=["BerttModel"])
    refused(folder, "^broken: .*bertt")


def test_one_of_several_weight_files_is_missing(tmp_path):
    folder = tmp_path / "sharded"
    tiny.make_model("bert").save_pretrained(folder, max_shard_size="40KB")
    tiny.make_tokenizer("bert").save_pretrained(folder)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    assert load(folder).n_layers == tiny.LAYERS
    shards[0].unlink()
    refused(folder, "^sharded: ")


@pytest.mark.parametrize("architecture", ["custom", "bert"])
def test_case_46_remote_code_needs_the_flag_and_never_asks(folder, monkeypatch, architecture):
    edit_config(folder, model_type=architecture, auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"})
    (folder / "code.py").write_text("raise SystemExit('this code ran')\n")
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("it asked"))
    monkeypatch.setattr(sys, "stdin", None)
    if architecture == "bert":  # transformers' own code serves
        assert load(folder).n_layers == tiny.LAYERS
        return
    refused(folder, "^broken: .*--trust-remote-code")


# -- poolers ---------------------------------------------------------------------------------------------------------


def test_case_4_a_pooler_without_trained_weights_is_an_error(tmp_path):
    model = tiny.make_model("roberta", kind="RobertaForMaskedLM")
    folder = tiny.save(model, tiny.make_tokenizer("roberta"), tmp_path / "mlm")
    message = refused(folder, "no trained pooler", source="pooler")
    assert "pooler.dense.weight" in message
    assert "pooler.dense.bias" in message
    assert np.array_equal(rows_of(load(folder))[3], rows_of(load(folder))[3])
    poolers = []
    for _ in range(2):  # what the network itself would do
        raw, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
        assert set(info["missing_keys"]) == {"pooler.dense.weight", "pooler.dense.bias"}
        poolers.append(raw.pooler.dense.weight)
    assert not torch.equal(*poolers)


@pytest.mark.parametrize("name", ["distilbert", "electra", "modernbert", "deberta", "deberta-v2", "xlnet"])
def test_case_4_an_architecture_without_a_pooler(tiny_folder, name):
    refused(tiny_folder(name), f"^{name}: .* has no pooler", source="pooler")


# -- what loads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", "BertForMaskedLM"),
        ("bert", "BertForSequenceClassification"),
        ("roberta", "RobertaForSequenceClassification"),
        ("albert", "AlbertForMaskedLM"),
        ("distilbert", "DistilBertForMaskedLM"),
        ("electra", "ElectraForPreTraining"),
        ("deberta-v2", "DebertaV2ForMaskedLM"),
        ("xlnet", "XLNetLMHeadModel"),
        ("modernbert", "ModernBertForMaskedLM"),
        ("longformer", "LongformerForMaskedLM"),
        ("big_bird", "BigBirdForMaskedLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("t5", "T5ForConditionalGeneration"),
        ("t5", "T5EncoderModel"),
    ],
)
def test_a_checkpoint_with_a_head_or_without_a_decoder_gives_the_same_encoder(tmp_path, name, kind):
    model = tiny.make_model(name, kind=kind)
    folder = tiny.save(model, tiny.make_tokenizer(name), tmp_path / "head")
    encoder = load(folder, source=tiny.ARCHITECTURES[name].source)
    body = getattr(model, model.base_model_prefix, model)
    body = body.get_encoder() if name == "t5" else body
    expected = Encoder(body, encoder.tokenizer, source=encoder.source, device="cpu")
    assert np.array_equal(rows_of(encoder)[3], rows_of(expected)[3])


def test_case_13_a_bfloat16_checkpoint_loads_as_float32(tmp_path):
    model = tiny.make_model("bert").to(torch.bfloat16)
    folder = tiny.save(model, tiny.make_tokenizer("bert"), tmp_path / "half")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    encoder = load(folder)
    assert {parameter.dtype for parameter in encoder.model.parameters()} == {torch.float32}
    assert encoder.dtype == "float32"
    expected = Encoder(model.float(), encoder.tokenizer, device="cpu")
    assert np.array_equal(rows_of(encoder)[3], rows_of(expected)[3])


def test_case_20_two_loads_are_one_network(tiny_folder):
    one, other = load(tiny_folder("bert")), load(tiny_folder("bert"))
    assert one.identity() == other.identity()
    state = [(name, tensor.numpy()) for name, tensor in one.model.state_dict().items()]
    assert hash_arrays(state) == hash_arrays([(name, t.numpy()) for name, t in other.model.state_dict().items()])


def test_a_folder_is_named_by_its_last_part(tiny_folder, monkeypatch):
    monkeypatch.chdir(tiny_folder("bert"))
    assert load(".").name == "bert"
    assert load(f"{tiny_folder('bert')}/").name == "bert"


def test_a_folder_called_embedded_is_reached_by_its_path(tiny_folder, tmp_path, monkeypatch):
    shutil.copytree(tiny_folder("bert"), tmp_path / "embedded")
    monkeypatch.chdir(tmp_path)
    assert load("./embedded").hidden_size == tiny.HIDDEN
    assert load("embedded").hidden_size == 384


# -- quiet -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("verbosity", [log.INFO, log.ERROR])
def test_loading_leaves_transformers_settings_alone(folder, verbosity, bars, fails):
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    if fails:
        (folder / "model.safetensors").unlink()
    try:
        log.set_verbosity(verbosity)
        (log.enable_progress_bar if bars else log.disable_progress_bar)()
        if fails:
            refused(folder, "broken")
        else:
            load(folder)
        assert (log.get_verbosity(), log.is_progress_bar_enabled()) == (verbosity, bars)
    finally:
        log.set_verbosity(before[0])
        (log.enable_progress_bar if before[1] else log.disable_progress_bar)()


def test_loading_leaves_the_hubs_progress_bars_alone(folder):
    from huggingface_hub import utils

    utils.disable_progress_bars()
    try:
        load(folder)
        assert utils.are_progress_bars_disabled()
    finally:
        utils.enable_progress_bars()


def test_loading_prints_nothing(folder, capfd):
    edit_weights(folder, lambda weights: weights | {"cls.extra.weight": torch.zeros(2)})
    load(folder)
    assert capfd.readouterr() == ("", "")


SCRIPT = """
import sys
from cls_analysis import Encoder, extract_vectors
for line in sys.stdin:
    name, source, folder = line.split()
    print(f"== {name}", file=sys.stderr, flush=True)
    encoder = Encoder.from_pretrained(folder, source=source, device="cpu")
    extract_vectors(encoder, ["a b", "c d e f", "g"])
"""


@pytest.fixture(scope="module")
def noise(tiny_folder):
    """What a process of its own prints while it loads and runs each architecture."""
    lines = [f"{name} {tiny.ARCHITECTURES[name].source} {tiny_folder(name)}" for name in tiny.NAMES]
    environment = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout == ""
    parts = done.stderr.split("== ")[1:]
    return dict(part.split("\n", 1) for part in parts)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_case_48_loading_and_extracting_print_nothing(noise, name):
    """No bars, no load reports, no warning that a tokenizer was forked."""
    assert noise[name] == ""


def test_every_refusal_is_ours(folder):
    """Whatever a foreign loader raises, the command line can print it as one line."""
    edit_config(folder, num_attention_heads=5)
    with pytest.raises(ClsAnalysisError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
