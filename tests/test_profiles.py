"""``Profile``: merging, sampling, the file on disk, and which dimensions are dead."""

from __future__ import annotations

import json
import socket
from dataclasses import replace

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from cls_analysis import Profile, profile_vectors
from cls_analysis.errors import DataError, ProfileError
from cls_analysis.profiles import ProfileBuilder, RowSums
from cls_analysis.provenance import DatasetIdentity, EncoderIdentity, Part, Provenance, row_keys

ENCODER = EncoderIdentity("tiny", "weights", "tokenizer", "BertModel", 3, 6, "cls", 512, "sdpa", "none")
N, SAMPLE = 120, 16


def vectors(n: int = N, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((n, 3)).astype(np.float32) + np.float32(2)
    x[[5, 17]] = 0  # zero vectors have no direction
    return x


def build(x, rows=None, *, blocks: int = 1, dataset: str = "aaaa", **settings) -> Profile:
    """Profile of the rows ``rows`` of ``x``: layer 0 holds x, layer 6 holds 2x."""
    rows = np.arange(len(x)) if rows is None else np.asarray(rows)
    provenance = Provenance(
        **{
            "encoder": ENCODER,
            "layers": (0, 6),
            "datasets": (DatasetIdentity(f"data-{dataset}", None, dataset),),
            "parts": (),
            "sample_rows": SAMPLE,
        }
        | settings
    )
    builder = ProfileBuilder(provenance)
    for ids in np.array_split(rows, blocks):
        block = {0: x[ids], 6: 2 * x[ids]}
        sums = {layer: RowSums.of(values) for layer, values in block.items()}
        builder.add(sums, ids, lambda layer, where, block=block: block[layer][where])
    return builder.finish()


def assert_same(a: Profile, b: Profile) -> None:
    """The same sample and counts to the bit, the same sums to 1e-10 of their scale."""
    assert a.provenance == b.provenance
    assert (a.n, a.layers) == (b.n, b.layers)
    for number in a.layers:
        one, two = a[number], b[number]
        assert one.n_zero == two.n_zero
        for name in ("sample", "sample_ids", "sample_datasets"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        for name in ("mean", "variance", "covariance", "energy"):
            np.testing.assert_allclose(getattr(one.moments, name), getattr(two.moments, name), rtol=1e-10, atol=1e-10)
        for name in ("skewness", "kurtosis_excess"):
            np.testing.assert_allclose(getattr(one.moments, name), getattr(two.moments, name), rtol=0, atol=1e-8)
        np.testing.assert_allclose(one.unit_sum, two.unit_sum, rtol=1e-10)
        np.testing.assert_allclose(one.unit_square_sum, two.unit_square_sum, rtol=1e-10)


# -- what a Profile holds --------------------------------------------------------------------------------------------


def test_contents():
    x = vectors()
    profile = build(x, blocks=5)
    assert (profile.n, profile.dim, profile.layers) == (N, 3, (0, 6))
    assert (profile.encoder, profile.dataset) == ("tiny", "data-aaaa")
    assert profile.provenance.parts == (Part("aaaa", 0, N - 1),)
    wide = x[np.abs(x).sum(axis=1) > 0].astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    for number, scale in ((0, 1), (6, 2)):
        layer = profile[number]
        assert (layer.n, layer.n_zero) == (N, 2)
        np.testing.assert_allclose(layer.unit_sum, unit.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(layer.unit_square_sum, (unit**2).sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(layer.moments.mean, scale * x.mean(axis=0, dtype=np.float64), rtol=1e-12)
        np.testing.assert_array_equal(layer.sample, scale * x[layer.sample_ids])
        assert layer.sample.dtype == np.float32


@pytest.mark.parametrize("seed", [0, 1])
def test_sample_is_the_smallest_keys(seed):
    sample = build(vectors(), blocks=7, sample_seed=seed)[0].sample_ids
    expected = sorted(range(N), key=lambda row: int(row_keys(seed, "aaaa", np.array([row]))[0]))[:SAMPLE]
    assert sample.tolist() == sorted(expected)


def test_small_profile_keeps_every_row():
    layer = profile_vectors(vectors(40))[-1]
    np.testing.assert_array_equal(layer.sample, vectors(40))
    np.testing.assert_array_equal(layer.sample_ids, np.arange(40))


@pytest.mark.parametrize(("layer", "held"), [(0, 0), (6, 6), (-1, 6), (-7, 0)])
def test_negative_layers_count_from_the_encoders_last(layer, held):
    profile = build(vectors())
    assert profile.resolve_layer(layer) == held
    assert profile[layer] is profile[held]


@pytest.mark.parametrize("layer", [1, 7, -2, -8])
def test_layer_that_is_not_held(layer):
    with pytest.raises(ProfileError, match=rf"layer {layer} is not in this Profile of tiny; it holds \[0, 6\]"):
        build(vectors())[layer]


def test_no_rows():
    with pytest.raises(DataError, match="no rows"):
        ProfileBuilder(build(vectors()).provenance).finish()


def test_dtype_without_known_rounding():
    with pytest.raises(DataError, match="float8"):
        build(vectors(), dtype="float8")


# -- merging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[60], [1], [119], [5, 6, 17, 18], [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_shards_equal_the_whole(cuts, order):
    x = vectors()
    shards = [build(x, rows) for rows in np.split(np.arange(N), cuts)]
    np.random.default_rng(order).shuffle(shards)
    while len(shards) > 1:  # a tree, in random order
        shards.append(shards.pop(0).merge(shards.pop(0)))
    assert_same(shards[0], build(x))


def test_shards_need_not_be_ranges():
    x = vectors()
    even, odd = build(x, np.arange(0, N, 2)), build(x, np.arange(1, N, 2))
    assert len(even.provenance.parts) == 60
    assert_same(even.merge(odd), build(x))


def test_two_data_sets_in_any_order():
    a, b = build(vectors(seed=1), dataset="ffff"), build(vectors(30, seed=2), dataset="0000")
    merged = a.merge(b)
    assert_same(merged, b.merge(a))
    assert merged.dataset == "data-0000+data-ffff"
    assert (merged.n, merged[0].n_zero) == (N + 30, 4)
    keys = [(int(key), name, i) for name, n in (("0000", 30), ("ffff", N)) for i, key in
            enumerate(row_keys(0, name, np.arange(n)))]  # fmt: skip
    expected = sorted((name, row) for _, name, row in sorted(keys)[:SAMPLE])
    layer = merged[0]
    names = [merged.provenance.datasets[number].hash for number in layer.sample_datasets]
    assert list(zip(names, layer.sample_ids.tolist(), strict=True)) == expected
    rows = {"ffff": vectors(seed=1), "0000": vectors(30, seed=2)}
    np.testing.assert_array_equal(layer.sample, np.stack([rows[name][row] for name, row in expected]))


def test_merge_leaves_both_as_they_were(tmp_path):
    a, b = build(vectors(), range(50)), build(vectors(), range(50, N))
    before = [each.save(tmp_path / "before").read_bytes() for each in (a, b)]
    a.merge(b)
    assert [each.save(tmp_path / "after").read_bytes() for each in (a, b)] == before


def test_overlapping_rows_are_refused():
    a, b = build(vectors(), range(60)), build(vectors(), range(50, N))
    with pytest.raises(ProfileError, match="both Profiles hold rows 50 to 59 of data set aaaa"):
        a.merge(b)
    with pytest.raises(ProfileError, match="both Profiles hold rows 0 to 59"):
        a.merge(a)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"encoder": replace(ENCODER, weights_hash="w2", name="other")}, "weights_hash"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"encoder": None}, "encoder"),
    ],
)
def test_other_settings_are_refused_by_name(settings, name):
    a, b = build(vectors(), range(60)), build(vectors(), range(60, N), **settings)
    with pytest.raises(ProfileError, match=name):
        a.merge(b)
    with pytest.raises(ProfileError, match=name):
        b.merge(a)


def test_other_layers_and_dimensions_are_refused():
    with pytest.raises(ProfileError, match="layers"):
        profile_vectors(vectors(), layer=1).merge(profile_vectors(vectors(seed=1), layer=2))
    with pytest.raises(ProfileError, match="3 dimensions in one Profile and 2 in the other"):
        profile_vectors(vectors()).merge(profile_vectors(vectors()[:, :2]))


# -- disk ------------------------------------------------------------------------------------------------------------


def test_same_work_same_bytes(tmp_path):
    first = build(vectors(), blocks=3).save(tmp_path / "one" / "a.safetensors")
    second = build(vectors(), blocks=3).save(str(tmp_path / "b.safetensors"))
    again = Profile.load(first).save(tmp_path / "c.safetensors")
    assert first.read_bytes() == second.read_bytes() == again.read_bytes()
    assert_same(Profile.load(first), build(vectors(), blocks=3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_sample_keeps_its_values(tmp_path, dtype):
    x = vectors().astype(dtype)
    layer = Profile.load(profile_vectors(x).save(tmp_path / "a"))[-1]
    np.testing.assert_array_equal(layer.sample, x)
    assert layer.sample.dtype.name == layer.dtype == x.dtype.name


def test_metadata_is_one_key_without_time_host_or_path(tmp_path):
    path = build(vectors()).save(tmp_path / "a.safetensors")
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert list(metadata) == ["cls_analysis"]
    values = json.loads(metadata["cls_analysis"])
    assert metadata["cls_analysis"] == json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert set(values) == {
        "encoder", "layers", "datasets", "parts", "dtype", "rows_cut", "rows_empty", "block_rows", "sample_seed",
        "sample_rows", "threads", "devices", "versions", "schema_version",
    }  # fmt: skip
    data = path.read_bytes()
    assert socket.gethostname().encode() not in data
    assert str(tmp_path.parent).encode() not in data


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The tensors and metadata of a Profile's file."""
    path = build(vectors()).save(tmp_path_factory.mktemp("stored") / "p.safetensors")
    with safetensors.safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        return path.read_bytes(), tensors, json.loads(file.metadata()["cls_analysis"])


def refuse(path) -> str:
    """The one line with which loading ``path`` is refused."""
    with pytest.raises(ProfileError) as caught:
        Profile.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("length", [0, 4, 8, 300, -1])
def test_truncated_file(tmp_path, stored, length):
    path = tmp_path / "p.safetensors"
    path.write_bytes(stored[0][:length])
    assert "not a safetensors file" in refuse(path)


@pytest.mark.parametrize("data", [np.random.default_rng(0).bytes(999), b"\xff" * 20, b"\x05" + bytes(7) + b"[1,2]"])
def test_random_bytes(tmp_path, data):
    path = tmp_path / "p.safetensors"
    path.write_bytes(data)
    assert "not a safetensors file" in refuse(path)


def test_missing_file_and_folder(tmp_path):
    assert "no such file" in refuse(tmp_path / "none.safetensors")
    refuse(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_other_safetensors(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2).to(getattr(torch, dtype))}, tmp_path / "model.safetensors")
    refuse(tmp_path / "model.safetensors")


def write(path, tensors, metadata):
    safetensors.numpy.save_file(tensors, path, metadata={"cls_analysis": json.dumps(metadata)})
    return path


SUMS = ("mean", "mean_low", "m2", "m3", "m4", "minimum", "maximum", "products", "unit_sum", "unit_square_sum", "sample")
FLOATS = [f"layer.6.{name}" for name in SUMS]
#: Every tensor of a Profile's file, layer 6 standing for all.
TENSORS = ["sample_ids", "sample_datasets", "layer.6.n", "layer.6.n_zero", *FLOATS]


def test_all_tensors_are_tried_below(stored):
    assert {name for name in stored[1] if not name.startswith("layer.0.")} == set(TENSORS)


@pytest.mark.parametrize("name", TENSORS)
def test_missing_tensor(tmp_path, stored, name):
    _, tensors, metadata = stored
    refuse(write(tmp_path / "p", {key: value for key, value in tensors.items() if key != name}, metadata))


@pytest.mark.parametrize("shape", ["empty", "one more axis"])
@pytest.mark.parametrize("name", TENSORS)
def test_wrong_shape(tmp_path, stored, name, shape):
    _, tensors, metadata = stored
    wrong = tensors[name].reshape(-1)[:0] if shape == "empty" else np.stack([tensors[name]] * 2)
    refuse(write(tmp_path / "p", tensors | {name: wrong}, metadata))


@pytest.mark.parametrize("name", FLOATS)
def test_nan(tmp_path, stored, name):
    _, tensors, metadata = stored
    damaged = tensors[name].copy()
    damaged.flat[1] = np.nan
    refuse(write(tmp_path / "p", tensors | {name: damaged}, metadata))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer.6.n", [N + 1]),
        ("layer.6.n", [-1]),
        ("layer.6.n_zero", [N + 1]),
        ("layer.6.n_zero", [-1]),
        ("layer.6.m2", [-1.0, 1, 1]),
        ("sample_ids", range(N - 1, N - 1 + SAMPLE)),
        ("sample_ids", [3] * SAMPLE),
        ("sample_datasets", [1] * SAMPLE),
        ("sample_datasets", [-1] * SAMPLE),
    ],
)
def test_values_that_do_not_fit_together(tmp_path, stored, name, value):
    _, tensors, metadata = stored
    refuse(write(tmp_path / "p", tensors | {name: np.array(value, dtype=tensors[name].dtype)}, metadata))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "newer"),
        ({"schema_version": None}, "schema_version"),
        ({"layers": []}, "no layer"),
        ({"layers": [0, 6, 7]}, ""),
        ({"datasets": []}, ""),
        ({"dtype": "int8"}, "int8"),
        ({"parts": []}, "rows"),
        ({"sample_rows": 3}, ""),
        ({"parts": [{"dataset": "bbbb", "first": 0, "last": N - 1}]}, ""),
    ],
)
def test_metadata_that_does_not_fit(tmp_path, stored, change, message):
    _, tensors, metadata = stored
    assert message in refuse(write(tmp_path / "p", tensors, metadata | change))


def test_metadata_that_is_no_json(tmp_path, stored):
    safetensors.numpy.save_file(stored[1], tmp_path / "p", metadata={"cls_analysis": "{"})
    assert "JSON" in refuse(tmp_path / "p")


# -- vectors that exist already --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "longdouble", "int64", "uint8", "bool"])
def test_profile_vectors(dtype):
    x = (np.random.default_rng(1).random((50, 3)) * 9).astype(dtype)
    profile = profile_vectors(x, name="mine")
    assert (profile.n, profile.dim, profile.layers) == (50, 3, (-1,))
    assert (profile.encoder, profile.provenance.source, profile.dataset) == ("vectors", "vectors", "mine")
    assert profile.provenance.dtype == (dtype if dtype in ("float16", "float32") else "float64")
    np.testing.assert_allclose(profile[-1].moments.covariance, np.cov(x.T.astype(float), bias=True), rtol=1e-12)


def test_memory_map_of_several_blocks(tmp_path):
    x = np.random.default_rng(2).standard_normal((9_000, 2)).astype(np.float32) + 1
    x[4_100] = 0
    np.save(tmp_path / "x.npy", x)
    mapped = profile_vectors(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert mapped.provenance == profile_vectors(x).provenance == profile_vectors(np.asfortranarray(x)).provenance
    layer = mapped[-1]
    assert (layer.n, layer.n_zero, len(layer.sample)) == (9_000, 1, 1_024)
    np.testing.assert_allclose(layer.moments.variance, x.var(axis=0, dtype=np.float64), rtol=1e-10)
    np.testing.assert_array_equal(layer.sample, x[layer.sample_ids])


def test_lists_and_layer_number():
    profile = profile_vectors([[1, 2], [3, 5]], layer=4)
    assert profile.layers == (4,)
    assert profile[4].moments.mean.tolist() == [2, 3.5]
    with pytest.raises(ProfileError, match="layer 3"):
        profile[3]


def test_other_vectors_are_another_data_set():
    a, b = profile_vectors(vectors(40)), profile_vectors(vectors(40, seed=1))
    assert a.merge(b).n == 80
    with pytest.raises(ProfileError, match="both Profiles hold"):
        a.merge(profile_vectors(vectors(40)))


@pytest.mark.parametrize(
    "x",
    [
        np.ones(3),
        np.ones((2, 3, 4)),
        np.ones((0, 3)),
        np.ones((3, 0)),
        5.0,
        [],
        [["a", "b"]],
        [[None, 1]],
        np.ones((2, 2), dtype=complex),
        [[1, 2], [3]],
    ],
    ids=["1-d", "3-d", "no rows", "no columns", "scalar", "empty", "str", "object", "complex", "ragged"],
)
def test_what_is_no_matrix_of_numbers(x):
    with pytest.raises(DataError, match="matrix of numbers"):
        profile_vectors(x)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite_is_named(value):
    x = vectors(5_000)
    x[4_700, 2] = value
    with pytest.raises(DataError, match=f"row 4700, dimension 2: value {value} is not finite"):
        profile_vectors(x)


# -- directions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_length_does_not_move_directions(scale):
    x = np.array([[3.0, 4.0], [-1.0, 0.0], [0.0, 0.0]]) * scale
    sums = RowSums.of(x)
    np.testing.assert_allclose(sums.unit_sum, [-0.4, 0.8], rtol=1e-15)
    np.testing.assert_allclose(sums.unit_square_sum, [1.36, 0.64], rtol=1e-15)
    assert sums.n_zero == 1


def test_tiny_beside_huge():
    layer = profile_vectors([[1e-30, 1e-30], [1e30, -1e30]])[-1]
    np.testing.assert_allclose(layer.unit_sum, [2**0.5, 0], rtol=1e-15, atol=1e-15)
    assert layer.n_zero == 0


# -- dead dimensions -------------------------------------------------------------------------------------------------


def waves(*pairs) -> np.ndarray:
    """One column for each (largest value, standard deviation): two values in turn."""
    return np.column_stack([np.tile([top, top - 2 * std], 10) for top, std in pairs])


@pytest.mark.parametrize(
    ("dtype", "pairs", "dead"),
    [
        # max = min
        ("float32", [(1, 0), (0, 0), (14.3, 0), (1, 1), (1, 1)], [1, 1, 1, 0, 0]),
        # at most 1e-6 of the layer's median standard deviation
        ("float64", [(0, 0.9e-6), (0, 1.1e-6), (1, 1), (1, 1), (1, 1)], [1, 0, 0, 0, 0]),
        # at most 16 roundings of the dtype at the largest magnitude: 100 · 16 · 2⁻⁷ = 12.5 for bfloat16
        ("bfloat16", [(100, 12.4), (100, 12.6), (-25, 37.4), (1, 1), (1, 1)], [1, 0, 0, 0, 0]),
        ("float16", [(100, 1.55), (100, 1.57), (1, 1), (1, 1), (1, 1)], [1, 0, 0, 0, 0]),
        ("float32", [(100, 1.90e-4), (100, 1.92e-4), (1, 1), (1, 1), (1, 1)], [1, 0, 0, 0, 0]),
        ("float64", [(1e9, 3.5e-6), (1e9, 3.7e-6), (1, 1), (1, 1), (1, 1)], [1, 0, 0, 0, 0]),
    ],
)
def test_dead_dimensions(dtype, pairs, dead):
    layer = replace(profile_vectors(waves(*pairs))[-1], dtype=dtype)
    assert layer.dead.tolist() == [bool(flag) for flag in dead]
    assert layer.living.tolist() == [not flag for flag in dead]
    assert not layer.collapsed


@pytest.mark.parametrize("x", [np.full((9, 3), 14.3), np.zeros((9, 3)), np.ones((1, 3))], ids=["same", "zero", "one"])
def test_collapsed(x):
    layer = profile_vectors(x)[-1]
    assert layer.collapsed
    assert layer.dead.all()


@pytest.mark.parametrize("large", [0.0, 20.0], ids=["even", "one large"])
@pytest.mark.parametrize("d", [16, 384, 768])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e10])
def test_one_vector_up_to_rounding_is_collapsed(large, d, scale):
    """200 copies and rounding of 1e-7 of the length: in small dimensions that is many roundings of the values."""
    rng = np.random.default_rng(d)
    vector = rng.standard_normal(d)
    vector[[3, 5]] = vector[3] + large, 1e-3
    rounding = 1e-7 * np.linalg.norm(vector) / np.sqrt(d)
    layer = profile_vectors((scale * (vector + rounding * rng.standard_normal((200, d)))).astype(np.float32))[-1]
    moments = layer.moments
    alone = moments.std > 16 * 2.0**-23 * np.maximum(np.abs(moments.minimum), np.abs(moments.maximum))
    assert alone.any()  # not every dimension is dead by itself
    assert layer.dead.all()
    assert layer.collapsed


@pytest.mark.parametrize(("spread", "collapsed"), [(15.5, True), (16.5, False)])
def test_spread_of_sixteen_roundings(spread, collapsed):
    """Lengths of 1, of which two dimensions of five hold nothing but the spread; the others do not vary."""
    x = np.zeros((20, 5), dtype=np.float32)
    x[:, 0] = 1
    x[:, 3] = np.tile([1, -1], 10) * spread * 2.0**-23 / np.sqrt(2)
    x[:, 4] = np.repeat([1, -1], 10) * spread * 2.0**-23 / np.sqrt(2)
    layer = profile_vectors(x)[-1]
    assert layer.collapsed == collapsed
    assert layer.living.tolist() == [False, False, False, not collapsed, not collapsed]


@pytest.mark.parametrize("mean", [0.0, 5.0])
def test_zero_padded_dimensions_do_not_collapse_the_rest(mean):
    x = np.zeros((100, 384), dtype=np.float32)
    x[:, :10] = np.random.default_rng(0).standard_normal((100, 10)) + mean
    layer = profile_vectors(x)[-1]
    assert np.flatnonzero(layer.living).tolist() == list(range(10))
    assert not layer.collapsed


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e3])
def test_one_huge_dimension_leaves_the_others_living(spread):
    """The others spread by less than 16 roundings of the length, and yet by all of theirs."""
    x = np.random.default_rng(0).standard_normal((100, 384))
    x[:, 7] = 1e8 + spread * x[:, 7]
    layer = profile_vectors(x.astype(np.float32))[-1]
    moments = layer.moments
    assert (moments.variance.sum() < (16 * 2.0**-23) ** 2 * moments.energy.sum()) == (spread < 1e3)
    assert np.delete(layer.living, 7).all()
    assert layer.living[7] == (spread == 1e3)
