"""Every architecture against the raw network called by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

TOLERANCE = 1e-5
LENGTHS = (3, 1, 17, 6, 9, 2)


def batch_of(encoder, text, pair=None):
    return encoder.collate(encoder.tokenize(text, pair), range(len(text)))


def stacked(rows):
    """Layers as the first axis."""
    return np.stack([rows[layer] for layer in sorted(rows)])


def assert_close(actual, expected):
    difference = float(np.abs(actual - expected).max() / np.abs(expected).max())
    assert difference <= TOLERANCE


def test_sizes(encoder, name):
    assert (encoder.hidden_size, encoder.n_layers) == (tiny.HIDDEN, tiny.LAYERS)
    assert encoder.max_length == tiny.ARCHITECTURES[name].usable
    assert encoder.name == name
    assert not encoder.model.training


def test_rows_of_a_padded_batch_are_the_raw_networks(encoder, raw, name):
    texts = tiny.words(*LENGTHS)
    rows = stacked(encoder.cls_rows(batch_of(encoder, texts)))
    assert rows.dtype == np.float32
    for i, text in enumerate(texts):
        assert_close(rows[:, i], raw(name).rows(text))


def test_pairs_are_the_raw_networks(encoder, raw, name):
    texts, pairs = tiny.words(5, 2, 8), tiny.words(1, 7, 3, seed=1)
    rows = stacked(encoder.cls_rows(batch_of(encoder, texts, pairs)))
    for i, (text, pair) in enumerate(zip(texts, pairs, strict=True)):
        assert_close(rows[:, i], raw(name).rows(text, pair))


@pytest.mark.parametrize("name", tiny.WITH_CLS)
def test_case_25_cls_is_found_by_its_id(encoder, name):
    batch = batch_of(encoder, tiny.words(*LENGTHS))
    places = encoder._positions(batch)
    ids = batch["input_ids"][torch.arange(len(places)), places]
    assert (ids == encoder.tokenizer.cls_token_id).all()
    expected = batch["attention_mask"].sum(1) - 1 if name == "xlnet" else torch.zeros(len(places), dtype=torch.int64)
    assert torch.equal(places, expected)


def test_last_layer_alone_is_the_last_of_all(encoder):
    batch = batch_of(encoder, tiny.words(*LENGTHS))
    every, last = encoder.cls_rows(batch, "all"), encoder.cls_rows(batch, [-1])
    assert list(every) == [0, 1, 2, 3]
    assert list(last) == [3]
    assert np.array_equal(every[3], last[3])


@pytest.mark.parametrize("name", ["albert", "electra"])
def test_case_27_layer_0_is_as_wide_as_the_others(encoder):
    rows = encoder.cls_rows(batch_of(encoder, ["a"]))
    assert encoder.model.config.embedding_size == 16
    assert {vectors.shape for vectors in rows.values()} == {(1, tiny.HIDDEN)}


def test_case_12_segments_count_where_the_model_has_them_and_only_there(encoder, name):
    batch = batch_of(encoder, tiny.words(4, 2), tiny.words(3, 5, seed=1))
    assert ("token_type_ids" in batch) == tiny.ARCHITECTURES[name].segments
    ones = torch.ones_like(batch["input_ids"])
    if "token_type_ids" in batch:
        assert set(batch["token_type_ids"][batch["attention_mask"] == 1].tolist()) >= {0, 1}
    # XLNet's segments are relative: all the same is no difference, whatever the number.
    difference = np.abs(encoder.cls_rows(batch)[3] - encoder.cls_rows(batch | {"token_type_ids": ones})[3]).max()
    assert difference > 1e-2 if tiny.ARCHITECTURES[name].segments else difference == 0.0


def test_case_7_a_text_of_full_length_runs_and_one_token_more_is_cut(encoder, raw, name):
    room = encoder.max_length - tiny.ARCHITECTURES[name].special
    full, longer = tiny.words(room)[0], tiny.words(room + 1)[0]
    tokenized = encoder.tokenize([full, longer])
    assert tokenized.lengths.tolist() == [encoder.max_length] * 2
    assert tokenized.cut.tolist() == [False, True]
    assert tokenized.n_cut == 1
    rows = stacked(encoder.cls_rows(encoder.collate(tokenized, [0, 1])))
    assert_close(rows[:, 0], raw(name).rows(full))
    assert_close(rows[:, 1], raw(name).rows(" ".join(longer.split()[:room])))


@pytest.mark.parametrize("name", tiny.WITH_CLS)
def test_case_25_a_left_padded_batch_is_no_silent_error(encoder, raw, name):
    """Positions count from the left, so padding there shifts them; the right vector or an error, nothing else."""
    from cls_analysis import ClsAnalysisError

    texts = tiny.words(3, 9)
    tokenizer = raw(name).tokenizer
    side, tokenizer.padding_side = tokenizer.padding_side, "left"
    batch = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=encoder._segments)
    tokenizer.padding_side = side
    try:
        rows = encoder.cls_rows(batch)
    except ClsAnalysisError:
        return
    assert_close(stacked(rows)[:, 0], raw(name).rows(texts[0]))


def test_token_rows_are_all_attended_tokens(encoder, raw, name):
    texts = tiny.words(3, 9)
    batch = batch_of(encoder, texts)
    rows = encoder.token_rows(batch, [1, -1])
    assert list(rows) == [1, 3]
    assert rows[3].shape == (int(batch["attention_mask"].sum()), tiny.HIDDEN)
    own = rows[1][: int(batch["attention_mask"][0].sum())]
    place = {"last": own[-1], "mean": own.mean(axis=0)}.get(encoder.source)
    vector = own[-1 if name == "xlnet" else 0] if place is None else place
    assert_close(vector, raw(name).rows(texts[0])[1])


# -- single cases ----------------------------------------------------------------------------------------------------


def test_case_25_xlnet_reads_its_last_token(tiny_encoder):
    """Left-padded index -1 is right, right-padded index -1 is not."""
    encoder = tiny_encoder("xlnet")
    ids, pad = encoder.tokenize(["a b c"]).ids[0], encoder.tokenizer.pad_token_id
    alone = encoder.cls_rows({"input_ids": [ids], "token_type_ids": [[0, 0, 0, 0, 2]]}, -1)[3]
    left = {"input_ids": [[pad, pad, *ids]], "attention_mask": [[0, 0, 1, 1, 1, 1, 1]]}
    left["token_type_ids"] = [[3, 3, 0, 0, 0, 0, 2]]
    right = {name: [row[0][2:] + row[0][:2]] for name, row in left.items()}
    assert_close(encoder.cls_rows(left, -1)[3], alone)
    assert_close(encoder.cls_rows(right, -1)[3], alone)
    with torch.no_grad():
        states = encoder.model(**{key: torch.tensor(value) for key, value in right.items()}).last_hidden_state
    assert np.abs(states[0, -1].numpy() - alone).max() > 0.1


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("modernbert", lambda model: setattr(model, "layers", model.layers[:2])),
        ("gpt2", lambda model: setattr(model, "h", model.h[:2])),
        ("t5", lambda model: setattr(model, "block", model.block[:2])),
    ],
    ids=["modernbert", "gpt2", "t5"],
)
def test_case_27_final_norm_of_inner_layers(tiny_encoder, name, cut):
    """State 2 of 3 needs the final norm to be the output of a network of 2."""
    plain, normed = tiny_encoder(name), tiny_encoder(name, apply_final_norm=True)
    batch = batch_of(plain, ["a b c d"])
    rows, with_norm = plain.cls_rows(batch), normed.cls_rows(batch)
    shorter = tiny_encoder(name)
    cut(shorter.model)
    with torch.no_grad():
        output = shorter.model(**batch).last_hidden_state
    expected = output.mean(1) if name == "t5" else output[:, -1 if name == "gpt2" else 0]
    assert_close(with_norm[2], expected.numpy())
    assert np.abs(rows[2] - expected.numpy()).max() > 0.1
    assert_close(with_norm[3], rows[3])
    assert plain.identity().final_norm == "last layer only"
    assert normed.identity().final_norm == "applied to all layers"


def test_case_43_longformers_cls_sees_the_whole_text(tiny_encoder):
    """Without global attention the window of 8 hides token 60 from it in one layer."""
    encoder = tiny_encoder("longformer")
    batch = batch_of(encoder, tiny.words(62))
    changed = {key: value.clone() for key, value in batch.items()}
    changed["input_ids"][0, 60] += 1
    assert np.abs(encoder.cls_rows(batch, 1)[1] - encoder.cls_rows(changed, 1)[1]).max() > 1e-5
    with torch.no_grad():
        one, other = (
            encoder.model(**rows, output_hidden_states=True).hidden_states[1][0, 0] for rows in (batch, changed)
        )
    assert torch.equal(one, other)
    assert "global" in encoder.identity().attention


def test_case_43_bigbird_does_not_depend_on_the_batches_before(tiny_encoder):
    """Left alone it turns from sparse to whole attention at the first short batch, for good."""
    fresh, used = tiny_encoder("big_bird"), tiny_encoder("big_bird")
    assert fresh.identity().attention.endswith("original_full")
    long = batch_of(fresh, tiny.words(62))
    used.cls_rows(batch_of(used, ["a"]))
    assert np.array_equal(fresh.cls_rows(long)[3], used.cls_rows(long)[3])


@pytest.mark.parametrize("name", ["bert", "xlnet", "deberta", "gpt2"])
def test_sources_are_what_they_say(tiny_encoder, raw, name):
    texts = tiny.words(4, 9)
    for source in ("mean", "first", "last"):
        encoder = tiny_encoder(name, source=source)
        rows = encoder.cls_rows(batch_of(encoder, texts), -1)[3]
        for i, text in enumerate(texts):
            with torch.no_grad():
                state = raw(name).model(**raw(name).inputs(text)).last_hidden_state[0]
            assert_close(rows[i], {"mean": state.mean(0), "first": state[0], "last": state[-1]}[source].numpy())
