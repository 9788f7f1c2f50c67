"""A norm in front of a classifier's linear layer: where it lands, what it leaves alone, how it comes back."""

from __future__ import annotations

import copy
import json
import pickle
import warnings

import classifiers
import numpy as np
import pytest
import tiny
import torch
import transformers

import cls_analysis as ca
from cls_analysis.errors import LoadingError, OptionError
from cls_analysis.normalization import attached_norms
from cls_analysis.normalization.heads import LinearHeadClassifier, classifier_dropout
from cls_analysis.normalization.making import NAMES
from cls_analysis.normalization.sites import find_sites

#: Names of the layers that read the raw vector and the pooled one, read off transformers' code.
LINEARS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "distilbert": ("pre_classifier", "classifier"),
    "electra": ("classifier.dense", "classifier.out_proj"),
    "albert": ("albert.pooler", "classifier"),
    "deberta-v2": ("pooler.dense", "classifier"),
    "xlnet": ("sequence_summary.summary", "logits_proj"),
    "modernbert": ("head.dense", "classifier"),
    "big_bird": ("classifier.dense", "classifier.out_proj"),
    "longformer": ("classifier.dense", "classifier.out_proj"),
}
DIM = tiny.HIDDEN


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def profile():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, DIM)) * np.geomspace(0.2, 3, DIM) + np.linspace(-2, 2, DIM)
    x[:, 3] = 1.0
    return ca.profile_vectors(x.astype(np.float32))


def norm_of(name, profile):
    return ca.make_norm(name, profile=profile)


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def train(model, batch, steps=3):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(5)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return model.eval()


def inputs_of(linear, run):
    seen = []
    hook = linear.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    run()
    hook.remove()
    return seen


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_sites(name):
    sites = find_sites(classifiers.make_classifier(name))
    assert (sites["cls"].linear, sites["pooled"].linear) == LINEARS[name]


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_looking_for_the_sites_changes_nothing(name):
    model = classifiers.make_classifier(name).train()
    before = (copy.deepcopy(model.state_dict()), torch.get_rng_state(), getattr(model.base_model, "attention_type", 0))
    find_sites(model)
    assert all(torch.equal(tensor, before[0][key]) for key, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), before[1])
    assert getattr(model.base_model, "attention_type", 0) == before[2]
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("position", ["cls", "pooled"])
@pytest.mark.parametrize("name", classifiers.NAMES)
def test_none_is_bit_equal_to_the_stock_model_in_training(name, position, profile):
    stock, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
    model = ca.attach_norm(copy.deepcopy(stock), norm_of("none", profile), position)
    assert torch.equal(logits(model, batch), logits(stock, batch))
    for each in (stock, model):
        each.train()
        torch.manual_seed(1)
        each(**batch).loss.backward()
    gradients = {key: parameter.grad for key, parameter in stock.named_parameters()}
    for key, parameter in model.named_parameters():
        assert (parameter.grad is None) == (gradients[key] is None)
        assert parameter.grad is None or torch.equal(parameter.grad, gradients[key])


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_the_norm_reads_the_vector_before_dropout_and_once(name, profile):
    model, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
    norm = norm_of("standardize", profile)
    ca.attach_norm(model, norm, "cls").train()
    linear = model.get_submodule(LINEARS[name][0])
    site = find_sites(classifiers.make_classifier(name))["cls"]
    seen = []
    hook = norm.register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
    torch.manual_seed(3)
    (given,) = inputs_of(linear, lambda: model(**batch))
    hook.remove()
    ((raw, normalised),) = seen
    if name != "xlnet":  # whose encoder ends in a dropout of its own
        assert torch.count_nonzero(raw) == raw.numel()
    living = [i for i in range(DIM) if i != 3]
    if site.dropout is None:
        assert torch.equal(given, normalised)
        return
    p = model.get_submodule(site.dropout).p
    kept = given[:, living] != 0
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(given[:, living][kept], normalised[:, living][kept] / (1 - p))


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_a_scale_of_one_draws_the_same_dropout_as_the_stock_model(name):
    # FixedNorm with shift 0 and gain 1 goes the whole way through the hook, and must change no bit.
    from cls_analysis.normalization.norms import FixedNorm

    stock, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
    model = copy.deepcopy(stock)
    for position in ("cls", "pooled"):
        ca.attach_norm(model, FixedNorm("scale", torch.zeros(DIM), torch.ones(DIM)), position)
    outputs = []
    for each in (stock, model):
        torch.manual_seed(7)
        outputs.append(each.train()(**batch).logits)
    assert torch.equal(*outputs)


@pytest.mark.parametrize("pairs", [False, True], ids=["single", "pair"])
@pytest.mark.parametrize("name", classifiers.NAMES)
def test_train_save_load(name, pairs, profile, tmp_path):
    model, batch = classifiers.make_classifier(name), classifiers.make_batch(name, pairs=pairs)
    ca.attach_norm(model, ca.make_norm("batchnorm", dim=DIM), "cls")
    ca.attach_norm(model, norm_of("standardize", profile), "pooled")
    train(model, batch)
    ca.save_classifier(model, tmp_path / "saved")
    again = ca.load_classifier(tmp_path / "saved")
    assert torch.equal(logits(again, batch), logits(model, batch))
    state = again.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("kind", NAMES)
def test_each_norm_survives_save_and_load(kind, profile, tmp_path):
    model, batch = classifiers.make_classifier("bert"), classifiers.make_batch("bert")
    train(ca.attach_norm(model, norm_of(kind, profile), "cls", label="mine"), batch)
    ca.save_classifier(model, tmp_path / "saved")
    again = ca.load_classifier(tmp_path / "saved")
    assert torch.equal(logits(again, batch), logits(model, batch))
    settings = again.config.cls_norm["cls"]
    assert (settings["name"], settings["label"], settings["linear"]) == (kind, "mine", "bert.pooler.dense")
    assert attached_norms(again)["cls"][1].options() == attached_norms(model)["cls"][1].options()


@pytest.mark.parametrize("kind", ["standardize", "whiten", "batchnorm", "isobn", "scale"])
@pytest.mark.parametrize("name", classifiers.NAMES)
def test_fold_gives_a_stock_checkpoint(name, kind, profile, tmp_path):
    model, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
    train(ca.attach_norm(model, norm_of(kind, profile), "cls"), batch)
    folded = ca.fold_norm(model)
    folded.save_pretrained(tmp_path)
    stock, info = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    assert type(stock) is type(model)
    assert not hasattr(stock.config, "cls_norm")
    expected = logits(model, batch)
    torch.testing.assert_close(logits(stock, batch), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert attached_norms(model)  # the model itself is as it was


@pytest.mark.parametrize("kind", ["center", "all-but-the-top", "batchnorm"])
def test_fold_at_the_pooled_position(kind, profile):
    for name in classifiers.NAMES:
        model, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
        train(ca.attach_norm(model, norm_of(kind, profile), "pooled"), batch)
        expected = logits(model, batch)
        folded = logits(ca.fold_norm(model), batch)
        torch.testing.assert_close(folded, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_fold_switches_a_bias_on_only_where_a_shift_needs_it(profile):
    for kind, bias in (("standardize", True), ("scale", False)):
        model = classifiers.make_classifier("modernbert")
        assert model.head.dense.bias is None
        folded = ca.fold_norm(ca.attach_norm(model, norm_of(kind, profile)))
        assert (folded.head.dense.bias is not None) == bias
        assert folded.config.classifier_bias == bias
        assert not model.config.classifier_bias


def test_fold_refuses_a_bias_that_the_configuration_cannot_switch_on(profile):
    model = classifiers.make_classifier("distilbert")
    model.pre_classifier.bias = None
    with pytest.raises(OptionError, match="no bias"):
        ca.fold_norm(ca.attach_norm(model, norm_of("center", profile).eval()) and _with_shift(model))


def _with_shift(model):
    attached_norms(model)["cls"][1].running_mean.fill_(1.0)
    return model


@pytest.mark.parametrize("kind", ["layernorm", "l2norm"])
def test_fold_refuses_what_is_not_affine(kind, profile):
    model = ca.attach_norm(classifiers.make_classifier("bert"), norm_of(kind, profile))
    with pytest.raises(OptionError, match=f"{kind} divides each vector by a length of its own"):
        ca.fold_norm(model)


def test_fold_needs_a_norm():
    with pytest.raises(OptionError, match="no attached norm"):
        ca.fold_norm(classifiers.make_classifier("bert"))


@pytest.mark.parametrize("name", classifiers.NAMES)
@pytest.mark.parametrize("kind", ["none", "l2norm", "whiten"])
def test_a_stock_load_reports_the_norm(name, kind, profile, tmp_path):
    model = ca.attach_norm(classifiers.make_classifier(name), norm_of(kind, profile))
    model.save_pretrained(tmp_path)
    _, info = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert any("cls_norm" in key for key in info["unexpected_keys"])


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_stock_names_stay(name, profile):
    stock = classifiers.make_classifier(name)
    names = set(stock.state_dict())
    model = ca.attach_norm(copy.deepcopy(stock), norm_of("whiten", profile))
    assert names <= set(model.state_dict())
    assert all("cls_norm" in key for key in set(model.state_dict()) - names)


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_copies_carry_the_norm(name, profile):
    model, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
    ca.attach_norm(model, ca.make_norm("batchnorm", dim=DIM))
    train(model, batch)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(logits(again, batch), logits(model, batch))
        # Its own state: training the copy leaves the model's averages alone.
        before = attached_norms(model)["cls"][1].running_mean.clone()
        again.train()(**batch)
        assert torch.equal(attached_norms(model)["cls"][1].running_mean, before)
        assert not torch.equal(attached_norms(again)["cls"][1].running_mean, before)


def test_replicas_carry_the_norm(profile):
    # What nn.DataParallel does to a module, without the devices: children replaced, hooks shared.
    model = ca.attach_norm(classifiers.make_classifier("bert"), norm_of("standardize", profile))
    linear = model.bert.pooler.dense
    replica = linear._replicate_for_data_parallel()
    replica.cls_norm = norm_of("scale", profile)
    replica.weight, replica.bias = linear.weight, linear.bias
    x = torch.randn(4, DIM)
    assert torch.equal(replica(x), torch.nn.functional.linear(replica.cls_norm(x), linear.weight, linear.bias))


@pytest.mark.parametrize("position", ["cls", "pooled"])
@pytest.mark.parametrize("name", classifiers.NAMES)
def test_detach_undoes_it(name, position, profile):
    stock, batch = classifiers.make_classifier(name), classifiers.make_batch(name)
    model = ca.attach_norm(copy.deepcopy(stock), norm_of("standardize", profile), position)
    assert not torch.equal(logits(model, batch), logits(stock, batch))
    ca.detach_norm(model)
    assert model.state_dict().keys() == stock.state_dict().keys()
    assert model.config.to_dict() == stock.config.to_dict()
    assert [type(module) for module in model.modules()] == [type(module) for module in stock.modules()]
    outputs = []
    for each in (stock, model):
        torch.manual_seed(2)
        outputs.append(each.train()(**batch).logits)
    assert torch.equal(*outputs)
    with pytest.raises(OptionError, match="no attached norm"):
        ca.detach_norm(model)


def test_one_of_two_norms_is_detached(profile):
    model = classifiers.make_classifier("roberta")
    for position in ("cls", "pooled"):
        ca.attach_norm(model, norm_of("scale", profile), position)
    ca.detach_norm(model, "cls")
    assert list(attached_norms(model)) == list(model.config.cls_norm) == ["pooled"]
    # RoBERTa's one Dropout serves both places: it stays deferred for the other.
    assert type(model.classifier.dropout).__name__ == "DeferredDropout"
    ca.detach_norm(model, "pooled")
    assert type(model.classifier.dropout) is torch.nn.Dropout


def test_a_second_norm_at_one_position_is_refused(profile):
    model = ca.attach_norm(classifiers.make_classifier("bert"), norm_of("scale", profile))
    with pytest.raises(OptionError, match="a norm at 'cls' already"):
        ca.attach_norm(model, norm_of("scale", profile))


def test_a_model_that_averages_is_refused(profile):
    model = tiny.make_model("modernbert", kind=classifiers.KINDS["modernbert"], classifier_pooling="mean")
    with pytest.raises(OptionError, match="none of its linear layers reads the last hidden state of one token"):
        ca.attach_norm(model, norm_of("scale", profile))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.nn.Linear(DIM, 2), "Linear: expected a sequence classifier"),
        (lambda: tiny.make_model("bert"), "BertModel: expected a sequence classifier.* no attribute 'logits'"),
        (lambda: tiny.make_model("bert", kind="BertForTokenClassification"), "or classify each"),
        (lambda: tiny.make_model("bert", kind="BertForMultipleChoice"), "3 rows of 8 tokens did not give logits"),
    ],
)
def test_what_is_no_sequence_classifier_is_refused(make, message, profile):
    with pytest.raises(OptionError, match=message):
        ca.attach_norm(make(), norm_of("scale", profile))


def test_width_and_position_are_checked():
    model = classifiers.make_classifier("bert")
    with pytest.raises(OptionError, match="reads 32 dimensions, the norm has 5"):
        ca.attach_norm(model, ca.make_norm("l2norm", dim=5))
    with pytest.raises(OptionError, match="unknown position 'head'"):
        ca.attach_norm(model, ca.make_norm("l2norm", dim=DIM), "head")
    assert not getattr(model.config, "cls_norm", None)


# -- origin of a Profile ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A classifier, and a Profile of its own encoder."""
    model = classifiers.make_classifier("bert")
    folder = tiny.save(model, tiny.make_tokenizer("bert"), tmp_path_factory.mktemp("bert"))
    texts = tiny.words(*[3, 4, 5, 6] * 10)
    profiles = {}
    for source in ("cls", "pooler", "mean"):
        encoder = ca.Encoder.from_pretrained(folder, source=source, device="cpu")
        profiles[source] = ca.compute_profile(encoder, texts)
    return model, profiles


def test_a_profile_of_these_weights_is_taken_and_recorded(bert):
    model, profiles = copy.deepcopy(bert[0]), bert[1]
    ca.attach_norm(model, ca.make_norm("standardize", profile=profiles["cls"]))
    origin = model.config.cls_norm["cls"]["origin"]
    assert origin["n"] == 40
    assert origin["weights_hash"] == profiles["cls"].provenance.encoder.weights_hash
    ca.attach_norm(copy.deepcopy(bert[0]), ca.make_norm("standardize", profile=profiles["pooler"]), "pooled")


@pytest.mark.parametrize(
    ("source", "layer", "position", "message"),
    [
        ("mean", -1, "cls", "source 'mean'"),
        ("cls", -1, "pooled", "source 'cls'"),
        ("cls", 1, "cls", "layer 1 of a Profile"),
    ],
)
def test_a_profile_of_other_vectors_is_refused(bert, source, layer, position, message):
    norm = ca.make_norm("standardize", profile=bert[1][source], layer=layer)
    with pytest.raises(OptionError, match=message):
        ca.attach_norm(copy.deepcopy(bert[0]), norm, position)


def test_a_profile_of_other_weights_is_refused(bert):
    model = classifiers.make_classifier("bert", seed=1)
    with pytest.raises(OptionError, match="other weights than this model's"):
        ca.attach_norm(model, ca.make_norm("standardize", profile=bert[1]["cls"]))


def test_an_untrained_pooler_is_reported(profile):
    model = classifiers.make_classifier("bert")
    with torch.no_grad():
        model.bert.pooler.dense.bias.zero_()
    with pytest.warns(UserWarning, match="pooler's bias is all zero"):
        ca.attach_norm(model, norm_of("scale", profile))
    with torch.no_grad():
        model.bert.pooler.dense.bias.fill_(0.1)
    ca.detach_norm(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ca.attach_norm(model, norm_of("scale", profile))


# -- damaged checkpoints ---------------------------------------------------------------------------------------------


def test_a_checkpoint_without_the_norm_it_names_is_refused(profile, tmp_path):
    model = ca.attach_norm(classifiers.make_classifier("bert"), norm_of("scale", profile))
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["cls_norm"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadingError, match=r"weights of a norm that config.json does not name"):
        ca.load_classifier(tmp_path)
    stock = classifiers.make_classifier("bert")
    stock.config.cls_norm = model.config.cls_norm
    stock.save_pretrained(tmp_path / "other")
    with pytest.raises(LoadingError, match="the weights have none"):
        ca.load_classifier(tmp_path / "other")


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(LoadingError, match=r"no config.json"):
        ca.load_classifier(tmp_path)


def test_sharded_weights_are_read(profile, tmp_path):
    model, batch = classifiers.make_classifier("bert"), classifiers.make_batch("bert")
    ca.attach_norm(model, norm_of("whiten", profile))
    model.eval().save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert torch.equal(logits(ca.load_classifier(tmp_path), batch), logits(model, batch))


# -- the study's own head --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", classifiers.NAMES)
def test_linear_head_on_every_architecture(name, profile, tmp_path):
    tokenizer = tiny.make_tokenizer(name)
    torch.manual_seed(0)
    model = LinearHeadClassifier(tiny.make_model(name), 3, cls_token_id=tokenizer.cls_token_id)
    batch = classifiers.make_batch(name)
    encoder = ca.Encoder(model.encoder, tokenizer, device="cpu")
    vectors = encoder.cls_rows({k: v for k, v in batch.items() if k != "labels"}, -1)[tiny.LAYERS]
    expected = torch.nn.functional.linear(torch.from_numpy(vectors), model.cls_head.weight, model.cls_head.bias)
    torch.testing.assert_close(logits(model.eval(), batch), expected, rtol=1e-4, atol=1e-4)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    sites = find_sites(model)
    assert (sites["cls"].linear, sites["cls"].dropout) == ("cls_head", "dropout")
    assert "pooled" not in sites
    train(ca.attach_norm(model, norm_of("standardize", profile)), batch)
    ca.save_classifier(model, tmp_path / "saved")
    again = ca.load_classifier(tmp_path / "saved")
    assert torch.equal(logits(again, batch), logits(model, batch))
    with pytest.raises(OptionError, match="one linear layer on the raw"):
        ca.fold_norm(model)


def test_dropout_of_the_linear_head_is_the_architectures_own():
    # HF #12781, #3928: each architecture keeps it under a name of its own.
    assert classifier_dropout(transformers.BertConfig(hidden_dropout_prob=0.15)) == 0.15
    assert classifier_dropout(transformers.BertConfig(classifier_dropout=0.3)) == 0.3
    assert classifier_dropout(transformers.AlbertConfig()) == 0.1
    assert transformers.AlbertConfig().hidden_dropout_prob == 0
    assert classifier_dropout(transformers.DistilBertConfig()) == 0.2


# -- in the user's own Trainer ---------------------------------------------------------------------------------------


def test_a_trainers_checkpoint_comes_back(profile, tmp_path):
    model, batch = classifiers.make_classifier("roberta"), classifiers.make_batch("roberta", rows=8)
    ca.attach_norm(model, ca.make_norm("batchnorm", dim=DIM, affine=True))
    rows = [{key: value[i] for key, value in batch.items()} for i in range(8)]
    arguments = transformers.TrainingArguments(
        tmp_path, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, save_steps=3, use_cpu=True
    )
    transformers.Trainer(model, arguments, train_dataset=rows).train()
    again = ca.load_classifier(tmp_path / "checkpoint-3")
    assert torch.equal(logits(again, batch), logits(model.eval(), batch))
    norm = attached_norms(again)["cls"][1]
    assert int(norm.n_updates) == 6
    assert not torch.equal(norm.weight, torch.ones(DIM))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["batchnorm", "isobn", "standardize", "whiten"])
def test_a_model_in_half_precision_keeps_its_statistics_whole(kind, dtype, profile, tmp_path):
    model, batch = classifiers.make_classifier("bert"), classifiers.make_batch("bert")
    norm = norm_of(kind, profile)
    ca.attach_norm(model, norm).to(dtype).train()
    model(**batch).loss.backward()
    assert {buffer.dtype for buffer in norm.buffers()} <= {torch.float32, torch.int64}
    whole = copy.deepcopy(model).float().eval()(**batch).logits.detach()
    half = model.eval()(**batch).logits
    assert half.dtype == dtype
    assert torch.allclose(half.float(), whole, rtol=0.0, atol=0.1 * float(whole.abs().max()))
    again = ca.load_classifier(ca.save_classifier(model, tmp_path / "half"))
    assert torch.equal(again(**batch).logits, whole)
    folded = ca.fold_norm(model)
    assert folded.dtype == torch.float32
    assert torch.allclose(folded(**batch).logits, whole, rtol=0.0, atol=1e-5 * float(whole.abs().max()))


def test_bfloat16_autocast(profile):
    model, batch = classifiers.make_classifier("roberta"), classifiers.make_batch("roberta")
    norm = norm_of("standardize", profile)
    ca.attach_norm(model, norm).train()
    seen = []
    norm.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    assert seen
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
