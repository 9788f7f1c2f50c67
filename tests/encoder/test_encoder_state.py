"""Frozen, in evaluation mode, in the dtype it says; its own checks and its identity."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from cls_analysis import ClsAnalysisError, Encoder
from cls_analysis.errors import OptionError
from cls_analysis.store import store_key


def rows_of(encoder, texts, layers=-1):
    tokenized = encoder.tokenize(texts)
    return encoder.cls_rows(encoder.collate(tokenized, range(len(texts))), layers)


def last_of(encoder, texts):
    return rows_of(encoder, texts)[encoder.n_layers]


# -- dropout and modes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "xlnet", "longformer"])
def test_case_3_a_network_in_training_mode_gives_the_same_vectors_twice(tiny_encoder, name):
    encoder, texts = tiny_encoder(name), tiny.words(3, 9)
    expected = last_of(encoder, texts)
    encoder.model.train()
    assert np.array_equal(last_of(encoder, texts), expected)
    assert np.array_equal(last_of(encoder, texts), expected)
    # What the mode would have done.
    with torch.no_grad():
        batch = encoder.collate(encoder.tokenize(texts), [0, 1])
        once, again = (encoder.model(**batch).last_hidden_state for _ in range(2))
    assert float((once - again).abs().max()) > 0.1


def test_case_3_a_model_handed_over_in_training_mode_is_frozen():
    model = tiny.make_model("bert").train()
    encoder = Encoder(model, tiny.make_tokenizer("bert"), device="cpu")
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())
    assert np.array_equal(last_of(encoder, ["a b"]), last_of(encoder, ["a b"]))


def test_the_mode_of_each_module_is_put_back(tiny_encoder):
    encoder = tiny_encoder("bert")
    encoder.model.train()
    encoder.model.encoder.layer[1].eval()
    before = [module.training for module in encoder.model.modules()]
    assert len(set(before)) == 2
    last_of(encoder, ["a"])
    assert [module.training for module in encoder.model.modules()] == before
    with pytest.raises(OptionError):
        rows_of(encoder, ["a"], 9)
    with pytest.raises(RuntimeError), encoder.evaluating():
        raise RuntimeError
    assert [module.training for module in encoder.model.modules()] == before
    assert torch.is_grad_enabled()


# -- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "albert", "big_bird"])
def test_case_2_the_pooler_is_not_cls(tiny_encoder, name):
    encoder = tiny_encoder(name, source="pooler")
    pooled = last_of(encoder, tiny.words(3, 7))
    cls = last_of(tiny_encoder(name), tiny.words(3, 7))
    layer = getattr(encoder.model.pooler, "dense", encoder.model.pooler)
    expected = np.tanh(cls @ layer.weight.numpy().T + layer.bias.numpy())
    assert np.abs(pooled - expected).max() <= 1e-6
    assert np.abs(pooled).max() <= 1.0
    assert np.abs(pooled - cls).max() > 0.1
    assert encoder.identity().source == "pooler"
    assert encoder.resolve_layers("all") == (tiny.LAYERS,)
    with pytest.raises(OptionError, match="pooler sits on layer 3"):
        encoder.resolve_layers([1, 3])


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("source", ["cls", "pooler"])
def test_case_26_no_cls_is_an_error_that_names_the_alternatives(tiny_encoder, name, source):
    with pytest.raises(OptionError, match=rf"^{name} has no \[CLS\] token.*--source mean\|first\|last"):
        tiny_encoder(name, source=source)


def test_case_26_a_causal_models_first_token_knows_nothing_of_the_text(tiny_encoder):
    """Which is why index 0 never stands in for [CLS]."""
    first, last = (last_of(tiny_encoder("gpt2", source=source), ["a b c", "a x y"]) for source in ("first", "last"))
    assert np.abs(first[0] - first[1]).max() <= 1e-6
    assert np.abs(last[0] - last[1]).max() > 0.1


def test_unknown_source_and_dtype_name_the_nearest(tiny_encoder):
    with pytest.raises(OptionError, match="did you mean 'pooler'"):
        tiny_encoder("bert", source="poler")
    with pytest.raises(OptionError, match="did you mean 'bfloat16'"):
        tiny_encoder("bert", dtype="bfloat61")
    with pytest.raises(OptionError, match="device 'tpu'"):
        tiny_encoder("bert", device="tpu")


# -- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "resolved"),
    [
        ("all", (0, 1, 2, 3)),
        (-1, (3,)),
        (np.int64(-1), (3,)),
        ([-1, 0], (0, 3)),
        ((3, -1), (3,)),
        (np.arange(2), (0, 1)),
    ],
)
def test_case_27_layers_are_0_to_3(loaded, layers, resolved):
    assert loaded("bert").resolve_layers(layers) == resolved


@pytest.mark.parametrize("layers", [4, -5, [], "last", [0, 9], [1.5]])
def test_a_layer_that_does_not_exist(loaded, layers):
    with pytest.raises(OptionError, match="layers"):
        loaded("bert").resolve_layers(layers)


def test_case_27_the_last_state_is_the_output(loaded):
    encoder = loaded("bert")
    batch = encoder.collate(encoder.tokenize(["a b"]), [0])
    with torch.no_grad():
        output = encoder.model(**batch, output_hidden_states=True)
    assert len(output.hidden_states) == encoder.n_layers + 1 == 4
    rows = encoder.cls_rows(batch)
    for layer, state in enumerate(output.hidden_states):
        assert np.abs(rows[layer] - state[:, 0].numpy()).max() <= 1e-6
    assert torch.equal(output.hidden_states[-1], output.last_hidden_state)


# -- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["cls", "mean", "last", "pooler"])
def test_case_40_no_vector_keeps_its_batch_alive(tiny_encoder, source):
    encoder = tiny_encoder("bert", source=source)
    batch = encoder.collate(encoder.tokenize(tiny.words(30, 30)), [0, 1])
    with encoder.evaluating():
        vectors = encoder.vectors(batch, encoder.resolve_layers("all"))
    for vector in vectors.values():
        assert vector.untyped_storage().nbytes() == vector.numel() * 4
        assert not vector.requires_grad


# -- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deberta", "deberta-v2", "t5"])
def test_case_13_float16_is_refused_where_it_overflows(tiny_encoder, name):
    with pytest.raises(OptionError, match="overflows in float16"):
        tiny_encoder(name, dtype="fp16")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_case_13_half_precision_only_on_request_and_recorded(tiny_encoder, dtype):
    encoder, texts = tiny_encoder("bert", dtype=dtype), tiny.words(3, 9)
    rows, exact = last_of(encoder, texts), last_of(tiny_encoder("bert"), texts)
    assert encoder.dtype == dtype
    assert {parameter.dtype for parameter in encoder.model.parameters()} == {torch.float32}
    assert rows.dtype == np.float32
    assert 1e-5 < np.abs(rows - exact).max() < 0.3


def test_case_13_a_model_handed_over_in_half_precision_is_not_called_float32():
    """Either its weights become float32, or the encoder does not say float32."""
    encoder = Encoder(tiny.make_model("bert").to(torch.bfloat16), tiny.make_tokenizer("bert"), device="cpu")
    stored = {str(parameter.dtype).removeprefix("torch.") for parameter in encoder.model.parameters()}
    assert stored == {encoder.dtype}


# -- the encoder's own checks ----------------------------------------------------------------------------------------


def ignore_mask(encoder):
    forward = encoder.model.forward
    encoder.model.forward = lambda attention_mask=None, **inputs: forward(**inputs)


@pytest.mark.parametrize("lengths", [(2, 9, 20), (2, 2, 2, 2, 20)], ids=["mixed", "most of one length"])
def test_case_1_a_model_that_ignores_the_mask_is_warned_of(tiny_encoder, lengths):
    encoder = tiny_encoder("bert")
    tokenized = encoder.tokenize(tiny.words(*lengths))
    encoder.self_check(tokenized)
    ignore_mask(encoder)
    with pytest.warns(UserWarning, match="attention mask"):
        encoder.self_check(tokenized)


def test_case_3_a_model_that_draws_random_numbers_is_an_error(tiny_encoder):
    encoder = tiny_encoder("bert")
    encoder.model.embeddings.register_forward_hook(lambda *args: torch.nn.functional.dropout(args[-1], 0.1, True))
    with pytest.raises(ClsAnalysisError, match="two passes"):
        encoder.self_check(encoder.tokenize(tiny.words(2, 9)))


def test_the_checks_pass_in_silence(encoder):
    encoder.self_check(encoder.tokenize(tiny.words(2, 9, 20)))


# -- identity --------------------------------------------------------------------------------------------------------


def test_identity_says_what_was_measured(tiny_encoder):
    identity = tiny_encoder("bert", max_length=20).identity()
    assert (identity.name, identity.architecture, identity.source) == ("bert", "BertModel", "cls")
    assert (identity.hidden_size, identity.n_layers, identity.max_length) == (tiny.HIDDEN, tiny.LAYERS, 20)
    assert identity.attention == "sdpa"


def test_case_42_the_attention_kind_is_recorded_and_moves_nothing(tiny_encoder):
    sdpa, eager = tiny_encoder("bert"), tiny_encoder("bert")
    eager.model.set_attn_implementation("eager")
    assert eager.identity().attention == "eager"
    texts = tiny.words(3, 9)
    assert np.abs(last_of(sdpa, texts) - last_of(eager, texts)).max() <= 1e-5


def test_case_41_the_weights_hash_sees_one_weight(tiny_encoder):
    encoder = tiny_encoder("bert")
    before = encoder.identity().weights_hash
    assert tiny_encoder("bert").identity().weights_hash == before
    encoder.model.encoder.layer[2].output.dense.bias[5] += 1.0
    assert encoder.identity().weights_hash != before


def test_case_41_the_name_does_not_count_but_weights_tokenizer_and_settings_do(tiny_encoder, tmp_path):
    from cls_analysis.extraction import Extraction
    from cls_analysis.texts import load_texts

    def key(encoder, texts=("a b", "c"), layers="all"):
        return store_key(Extraction(encoder, load_texts(list(texts)), layers).provenance())

    mine = key(tiny_encoder("bert"))
    folder = tiny.make_folder("bert", tmp_path / "renamed")
    assert key(Encoder.from_pretrained(folder, device="cpu")) == mine
    others = [
        key(tiny_encoder("bert", max_length=20)),
        key(tiny_encoder("bert", source="mean")),
        key(tiny_encoder("bert", dtype="bfloat16")),
        key(tiny_encoder("bert"), layers=-1),
        key(tiny_encoder("bert"), texts=("a b", "d")),
        key(Encoder(tiny.make_model("bert", seed=1), tiny.make_tokenizer("bert"), device="cpu")),
        key(Encoder(tiny.make_model("bert"), tiny.make_tokenizer("bert", do_lower_case=False), device="cpu")),
        key(Encoder(tiny.make_model("bert", attn_implementation="eager"), tiny.make_tokenizer("bert"), device="cpu")),
        key(tiny_encoder("modernbert")),
        key(tiny_encoder("modernbert", apply_final_norm=True)),
    ]
    assert len({mine, *others}) == len(others) + 1


def test_the_tokenizer_hash_does_not_depend_on_its_last_call(tiny_encoder):
    encoder = tiny_encoder("bert")
    before = encoder.identity().tokenizer_hash
    encoder.tokenizer(["a b c", "d"], truncation=True, max_length=3, padding=True)
    assert encoder.identity().tokenizer_hash == before


def test_case_41_the_side_that_is_cut_counts():
    """Rows over the limit then have other vectors."""
    left, right = (
        Encoder(tiny.make_model("bert"), tiny.make_tokenizer("bert", truncation_side=side), max_length=5, device="cpu")
        for side in ("left", "right")
    )
    assert left.tokenize(["a b c d"]).ids != right.tokenize(["a b c d"]).ids
    assert left.identity() != right.identity()


def test_case_27_an_encoder_without_its_decoder_has_the_same_final_norm():
    model, tokenizer = tiny.make_model("t5", kind="T5EncoderModel"), tiny.make_tokenizer("t5")
    encoder = Encoder(model, tokenizer, source="mean", apply_final_norm=True, device="cpu")
    assert encoder.identity().final_norm == "applied to all layers"


def test_the_poolers_weights_count_for_source_pooler_alone(tmp_path):
    hashes = {}
    for source in ("cls", "pooler"):
        for change in (0.0, 1.0):
            model = tiny.make_model("bert")
            model.pooler.dense.bias.data += change
            encoder = Encoder(model, tiny.make_tokenizer("bert"), source=source, device="cpu")
            hashes[source, change] = encoder.identity().weights_hash
    assert hashes["cls", 0.0] == hashes["cls", 1.0]
    assert hashes["pooler", 0.0] != hashes["pooler", 1.0]


def test_case_7_more_than_the_positions_is_refused(tiny_encoder):
    with pytest.raises(OptionError, match="65 is more than the model's 64 positions"):
        tiny_encoder("roberta", max_length=65)
    with pytest.raises(OptionError, match="no room"):
        tiny_encoder("roberta", max_length=2)
