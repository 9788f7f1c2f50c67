"""GLUE's official TSV files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cls_analysis import load_texts
from cls_analysis.errors import DataError, OptionError
from cls_analysis.texts.glue import choose_split

#: Rows and labels of the official files, counted by lines and by column outside of Python.
OFFICIAL = [
    ("sst2@train", 67349, {0: 29780, 1: 37569}),
    ("sst2@dev", 872, {0: 428, 1: 444}),
    ("sst2@test", 1821, None),
    ("cola@train", 8551, {0: 2528, 1: 6023}),
    ("cola@dev", 1043, {0: 322, 1: 721}),
    ("cola@test", 1063, None),
    ("rte@train", 2490, {0: 1249, 1: 1241}),
    ("rte@dev", 277, {0: 146, 1: 131}),
    ("qnli@dev", 5463, {0: 2702, 1: 2761}),
    ("wnli@train", 635, {0: 323, 1: 312}),
    ("wnli@dev", 71, {0: 40, 1: 31}),
    ("wnli@test", 146, None),
    ("mrpc@train", 3668, {0: 1194, 1: 2474}),
    ("mrpc@dev", 408, {0: 129, 1: 279}),
    ("mrpc@test", 1725, {0: 578, 1: 1147}),
]


@pytest.fixture
def glue(write, tmp_path):
    """Write official files by hand, given by path, and return their folder."""

    def folder(**files: str) -> Path:
        for name, content in files.items():
            task, split = name.split("__")
            write(f"{task}/{split}.tsv", content)
        return tmp_path

    return folder


@pytest.mark.parametrize(("source", "rows", "labels"), OFFICIAL)
def test_rows_and_labels(source, rows, labels, glue_dir):
    texts = load_texts(f"glue/{source}", data_dir=glue_dir)
    task, split = source.split("@")
    assert (texts.name, texts.split, len(texts)) == (f"glue/{task}", split, rows)
    assert (texts.label and Counter(texts.label)) == labels
    assert (texts.pair is None) == (task in ("sst2", "cola"))
    assert texts.n_empty == 0


@pytest.mark.parametrize(
    ("source", "row", "text", "pair"),
    [
        ("cola@dev", 0, "The sailors rode the breeze clear of the rocks.", None),
        ("cola@test", 1, "The car honked its way down the road.", None),
        ("stsb@dev", 1, "A young child is riding a horse.", "A child is riding a horse."),
        ("qnli@dev", 0, "What came into force after the new constitution was herald?", None),
    ],
)
def test_rows_as_they_stand(source, row, text, pair, glue_dir):
    texts = load_texts(f"glue/{source}", data_dir=glue_dir)
    assert texts.text[row] == text
    assert pair is None or texts.pair[row] == pair


@pytest.mark.parametrize("split", ["train", "dev"])
def test_stsb_scores_are_floats(split, glue_dir):
    texts = load_texts(f"glue/stsb@{split}", data_dir=glue_dir)
    lines = (glue_dir / "STS-B" / f"{split}.tsv").read_bytes().rstrip(b"\n").split(b"\n")[1:]
    assert texts.label == [float(line.rsplit(b"\t", 1)[1]) for line in lines]
    assert {type(label) for label in texts.label} == {float}
    assert (min(texts.label), max(texts.label), texts.label_names) == (0.0, 5.0, None)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_case_21_double_quotes_of_mrpc_are_letters(split, glue_dir):
    texts = load_texts(f"glue/mrpc@{split}", data_dir=glue_dir)
    raw = (glue_dir / "MRPC" / f"{split}.tsv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    assert sum(text.count('"') for text in texts.text + texts.pair) == raw.count(b'"') > 0
    lines = raw.decode("utf-8").rstrip("\n").split("\n")[1:]
    assert [f"{a}\t{b}" for a, b in zip(texts.text, texts.pair, strict=True)] == [
        line.split("\t", 3)[3] for line in lines
    ]


def test_case_08_the_test_split_of_mrpc_has_labels(glue_dir):
    assert set(load_texts("glue/mrpc@test", data_dir=glue_dir).require_labels()) == {0, 1}


def test_a_test_split_without_labels(glue_dir, refused):
    texts = load_texts("glue/sst2@test", data_dir=glue_dir)
    assert texts.label is None
    with refused(DataError, "glue/sst2@test", "no labels"):
        texts.require_labels()


@pytest.mark.parametrize("split", ["dev", "validation"])
@pytest.mark.parametrize("task", ["sst2", "SST-2", "sst-2", "SST2"])
def test_names_of_tasks_and_splits(task, split, glue):
    folder = glue(**{"SST-2__dev": "sentence\tlabel\nfine\t1\n", "SST-2__train": "sentence\tlabel\nbad\t0\n"})
    texts = load_texts(f"glue/{task}", split=split, data_dir=str(folder))
    assert (texts.name, texts.split, texts.text, texts.label) == ("glue/sst2", "dev", ["fine"], [1])


@pytest.mark.parametrize(
    ("name", "content", "text", "pair", "labels"),
    [
        (
            "MNLI__dev_matched",
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
            "0\ta\tb\tneutral\tcontradiction\n1\tc\td\tneutral\tneutral\n",
            ["a", "c"],
            ["b", "d"],
            [2, 1],
        ),
        ("QQP__dev", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n", ["a"], ["b"], [1]),
        ("RTE__dev", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n", ["a"], ["b"], [1]),
        ("CoLA__dev", "gj04\t0\t*\ttext\n", ["text"], None, [0]),
        ("WNLI__test", "index\tsentence1\tsentence2\n0\ta\tb\n", ["a"], ["b"], None),
    ],
)
def test_case_22_labels_are_numbered_as_on_the_hub_and_not_by_the_file(name, content, text, pair, labels, glue):
    texts = load_texts(f"glue/{name.split('__')[0].lower()}", data_dir=glue(**{name: content}))
    assert (texts.text, texts.pair, texts.label) == (text, pair, labels)


def test_case_22_the_names_of_the_labels(glue):
    folder = glue(
        MNLI__dev_matched="sentence1\tsentence2\tgold_label\na\tb\tneutral\n",
        RTE__dev="sentence1\tsentence2\tlabel\na\tb\tentailment\n",
        WNLI__dev="sentence1\tsentence2\tlabel\na\tb\t1\n",
    )
    names = {task: load_texts(f"glue/{task}", data_dir=folder).label_names for task in ("mnli", "rte", "wnli")}
    assert names == {
        "mnli": ("entailment", "neutral", "contradiction"),
        "rte": ("entailment", "not_entailment"),
        "wnli": ("not_entailment", "entailment"),
    }


@pytest.mark.parametrize("label", ["maybe", "", "2", "0.5", "Entailment"])
def test_case_22_an_unknown_label_is_named(label, glue, refused):
    folder = glue(RTE__dev=f"sentence1\tsentence2\tlabel\na\tb\tentailment\nc\td\t{label}\n")
    with refused(DataError, "dev.tsv", "row 1", "entailment"):
        load_texts("glue/rte@dev", data_dir=folder)


def test_case_08_hidden_labels_in_a_file(glue, refused):
    texts = load_texts("glue/rte", data_dir=glue(RTE__test="sentence1\tsentence2\tlabel\na\tb\t-1\n"))
    with refused(DataError, "split 'test' has no labels (all -1)"):
        texts.require_labels()


@pytest.mark.parametrize(
    ("name", "content", "row"),
    [
        ("SST-2__dev", "sentence\tlabel\na\t1\nb\t1\t2\n", 1),
        ("CoLA__dev", "gj04\t1\t\ta\ngj04\t1\t\tb\ngj04\t1\tc\n", 2),
    ],
    ids=["with header", "without header"],
)
def test_case_47_a_ragged_row_is_named(name, content, row, glue, refused):
    with refused(DataError, "dev.tsv", f"row {row}:"):
        load_texts(f"glue/{name.split('__')[0]}@dev", data_dir=glue(**{name: content}))


@pytest.mark.parametrize(
    ("source", "split", "parts"),
    [
        ("glue/cola", None, ["several splits", "train, dev"]),
        ("glue/cola@tran", None, ["'tran'", "did you mean 'train'?", "train, dev"]),
        ("glue/cola@test", None, ["'test'", "train, dev"]),
        ("glue/cola@dev", "dev", ["given twice", "@dev", "split='dev'"]),
        ("glue/colla@dev", None, ["'colla'", "did you mean 'cola'?", "mrpc"]),
    ],
)
def test_a_task_or_split_that_is_not_there(source, split, parts, glue, refused):
    row = "gj04\t1\t\ta\n"
    with refused(OptionError, *parts):
        load_texts(source, split=split, data_dir=glue(CoLA__train=row, CoLA__dev=row))


def test_a_folder_that_is_not_glue(tmp_path, glue, refused):
    with refused(DataError, str(tmp_path / "CoLA"), "--data-dir"):
        load_texts("glue/cola@dev", data_dir=tmp_path)
    (tmp_path / "RTE").mkdir()
    with refused(DataError, str(tmp_path / "RTE"), "train.tsv"):
        load_texts("glue/rte@dev", data_dir=tmp_path)
    folder = glue(**{"SST-2__dev": "text\tclass\na\t1\n"})
    with refused(DataError, "dev.tsv", "'sentence'", "official"):
        load_texts("glue/sst2@dev", data_dir=folder)


@pytest.mark.parametrize("wanted", ["validation", "dev"])
@pytest.mark.parametrize("held", ["validation", "dev"])
def test_a_split_is_found_under_either_of_its_names(wanted, held):
    assert choose_split("data", wanted, ["train", held]) == held
