"""Data sets of the hub's kind: objects of ``datasets``, local folders, and what goes wrong offline."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from cls_analysis import load_texts
from cls_analysis.errors import DataError, LoadingError, MissingPackageError, OptionError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def folder(write):
    """A local folder that ``datasets`` loads, with the splits train and test."""
    write("reviews/train.csv", "text,label\na,1\nb,0\n")
    return str(Path(write("reviews/test.csv", "text,label\nc,1\n")).parent)


@pytest.fixture
def hub(monkeypatch):
    """Put something in the place of the hub: a data set to give, or an exception to raise; lists what was asked."""

    def put(answer) -> list[tuple]:
        asked = []

        def load_dataset(*args, **_options):
            asked.append(args)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset)
        return asked

    return put


def rows_of(**columns):
    return datasets.Dataset.from_dict(columns)


# -- objects ---------------------------------------------------------------------------------------------------------


def test_a_data_set():
    texts = load_texts(rows_of(sentence=["NA", "b"], label=[1, 0], idx=[5, 6]))
    assert (texts.name, texts.text, texts.label, texts.row_id.tolist()) == ("dataset", ["NA", "b"], [1, 0], [0, 1])


def test_case_06_a_column():
    assert load_texts(rows_of(text=["a", "b"])["text"]).text == ["a", "b"]


@pytest.mark.parametrize("kind", ["data set", "column"])
def test_case_06_missing_in_a_data_set(kind, refused):
    source = rows_of(text=["a", None, "c"])
    source = source["text"] if kind == "column" else source
    with refused(DataError, "1 of 3", "row 1", "missing"):
        load_texts(source)
    assert load_texts(source, on_missing="drop").row_id.tolist() == [0, 2]


def test_case_06_numbers_in_a_data_set(refused):
    with refused(DataError, "rows 0, 1", "expected a string, found int"):
        load_texts(rows_of(text=[1, 2]))


def test_case_22_names_of_class_labels():
    source = rows_of(text=["a", "b"], label=[1, 0]).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    texts = load_texts(source)
    assert (texts.label, texts.label_names) == ([1, 0], ("no", "yes"))


@pytest.mark.parametrize("kind", ["numpy", "torch", "pandas"])
def test_labels_are_numbers_whatever_the_format_of_the_data_set(kind):
    texts = load_texts(rows_of(text=["a", "b"], label=[1, 0]).with_format(kind))
    assert (texts.text, texts.label) == (["a", "b"], [1, 0])
    assert [type(value) for value in texts.text + texts.label] == [str, str, int, int]


def test_case_08_hidden_labels_of_a_data_set():
    texts = load_texts(rows_of(text=["a", "b"], label=[-1, -1]))
    assert (texts.label, texts.labels_hidden) == (None, True)


def test_a_dictionary_of_splits(refused):
    source = datasets.DatasetDict(train=rows_of(text=["a"]), test=rows_of(text=["b"]))
    with refused(OptionError, "splits", "train, test"):
        load_texts(source)


def test_a_split_of_a_dictionary_of_splits(refused):
    source = datasets.DatasetDict(train=rows_of(text=["a"]), test=rows_of(text=["b"]))
    texts = load_texts(source, split="test")
    assert (texts.text, texts.split) == (["b"], "test")
    with refused(OptionError, "'tset'", "did you mean 'test'?"):
        load_texts(source, split="tset")


# -- folders ---------------------------------------------------------------------------------------------------------


def test_a_local_folder(folder):
    for texts in (load_texts(f"hub:{folder}@train"), load_texts(f"hub:{folder}", split="train")):
        assert (texts.split, texts.text, texts.label) == ("train", ["a", "b"], [1, 0])


def test_a_local_folder_is_called_by_its_name_not_its_path(folder):
    assert load_texts(f"hub:{folder}@test").name == "reviews"


def test_case_05_text_that_looks_missing_in_a_folder(write):
    path = Path(write("set/train.csv", "text,label\nNA,1\nnull,0\nplain,1\nnan,1\n"))
    assert load_texts(f"hub:{path.parent}@train").text == ["NA", "null", "plain", "nan"]


def test_the_only_split_needs_no_name(write):
    path = Path(write("set/train.jsonl", '{"text": "a"}'))
    texts = load_texts(f"hub:{path.parent}")
    assert (texts.split, texts.text) == ("train", ["a"])


@pytest.mark.parametrize("split", ["dev", "validation"])
def test_dev_and_validation_are_one(split, write):
    write("set/train.csv", "text\na\n")
    folder = Path(write("set/validation.csv", "text\nb\n")).parent
    assert load_texts(f"hub:{folder}@{split}").text == ["b"]


@pytest.mark.parametrize(
    ("behind", "split", "parts"),
    [
        ("", None, ["several splits", "train, test"]),
        ("@dev", None, ["'dev'", "train, test"]),
        ("@tset", None, ["'tset'", "did you mean 'test'?", "train, test"]),
        ("@test", "test", ["given twice", "@test", "split='test'"]),
    ],
)
def test_splits_of_a_folder(behind, split, parts, folder, refused):
    with refused(OptionError, *parts):
        load_texts(f"hub:{folder}{behind}", split=split)


@pytest.fixture
def configured(write):
    """A local folder with two configurations."""
    write("set/a.csv", "text\na\n")
    write("set/b.csv", "text\nb\n")
    configs = "".join(f"- config_name: {name}\n  data_files: {name}.csv\n" for name in "ab")
    return Path(write("set/README.md", f"---\nconfigs:\n{configs}---\n")).parent


def test_a_configuration(configured):
    assert load_texts(f"hub:{configured}:b@train").text == ["b"]


@pytest.mark.parametrize("config", ["", ":c"])
def test_case_46_a_configuration_is_needed(config, configured, refused):
    with refused(LoadingError, "configurations", "hub:NAME:CONFIG", "'a', 'b'"):
        load_texts(f"hub:{configured}{config}@train")


def test_case_47_a_ragged_file_in_a_folder_is_explained(write, refused):
    folder = Path(write("set/train.csv", "text,label\na,1\nb,1,2\n")).parent
    with refused(LoadingError, str(folder), "Expected 2 fields in line 3, saw 3"):
        load_texts(f"hub:{folder}@train")


def test_case_46_datasets_logs_nothing_itself(write, caplog):
    folder = Path(write("set/train.csv", "text,label\na,1\nb,1,2\n")).parent
    with pytest.raises(LoadingError):
        load_texts(f"hub:{folder}@train")
    assert caplog.records == []


def test_progress_bars_are_as_before(folder):
    load_texts(f"hub:{folder}@test")
    assert datasets.is_progress_bar_enabled()


# -- the hub ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["hub:nobody/nothing@train", "hub:nothing", "glue/cola@dev"])
def test_case_46_offline_in_one_line_and_at_once(source, refused):
    started = time.perf_counter()
    with refused(LoadingError, "cola" if "cola" in source else "nothing", "offline"):
        load_texts(source)
    assert time.perf_counter() - started < 5


def test_case_46_offline_names_the_cache_folder(refused):
    with refused(LoadingError, str(datasets.config.HF_DATASETS_CACHE)):
        load_texts("hub:nobody/nothing@train")


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            datasets.exceptions.DatasetNotFoundError("Dataset 'a/b' is a gated dataset on the Hub.\nVisit the page."),
            ["gated", "log in"],
        ),
        (
            datasets.exceptions.DatasetNotFoundError("Dataset 'a/b' doesn't exist on the Hub or cannot be accessed."),
            ["not found", "doesn't exist"],
        ),
        (RuntimeError("Dataset scripts are no longer supported, but found b.py"), ["script", "Parquet"]),
        (ConnectionError("Couldn't reach 'a/b' on the Hub (OfflineModeIsEnabled)"), ["cannot be reached"]),
        (OSError("something\nelse"), ["OSError", "something else"]),
    ],
    ids=["gated", "not found", "script", "offline", "other"],
)
def test_case_46_causes_in_one_line(error, parts, hub, refused):
    hub(error)
    with refused(LoadingError, "hub:a/b", *parts):
        load_texts("hub:a/b@train")


def test_case_46_a_folder_with_a_script(write, refused):
    folder = Path(write("set/set.py", "import datasets\n")).parent
    with refused(LoadingError, "script", "Parquet"):
        load_texts(f"hub:{folder}@train")


def test_case_46_glue_by_its_full_name_and_case_08_its_hidden_labels(hub, refused):
    names = datasets.ClassLabel(names=["unacceptable", "acceptable"])
    columns = {"sentence": ["a", "b"], "idx": [0, 1]}
    asked = hub(
        datasets.DatasetDict(
            validation=rows_of(**columns, label=[1, 0]).cast_column("label", names),
            test=rows_of(**columns, label=[-1, -1]).cast_column("label", names),
        )
    )
    dev = load_texts("glue/CoLA@dev")
    assert asked[-1][:2] == ("nyu-mll/glue", "cola")
    assert (dev.name, dev.split, dev.text, dev.label) == ("glue/cola", "dev", ["a", "b"], [1, 0])
    assert dev.label_names == ("unacceptable", "acceptable")
    test = load_texts("glue/cola@test")
    assert test.text == ["a", "b"]
    with refused(DataError, "split 'test' has no labels (all -1)"):
        test.require_labels()


def test_glue_pairs_of_the_hub(hub):
    hub(datasets.DatasetDict(validation_matched=rows_of(premise=["a"], hypothesis=["b"], label=[2], idx=[0])))
    texts = load_texts("glue/mnli@dev_matched")
    assert (texts.split, texts.text, texts.pair, texts.label) == ("dev_matched", ["a"], ["b"], [2])


def test_the_package_that_is_needed(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused(MissingPackageError, "hub:a/b", "cls-analysis[hub]"):
        load_texts("hub:a/b@train")
