"""The JSON: its keys, that it is strict, and that the schema that ships describes all of it and nothing else."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from planted import SIGNS, correlated, gaussian, profile_of, shifted, stretched

from cls_analysis import diagnose
from cls_analysis.diagnosis.document import SCHEMA_VERSION, diagnosis_document, to_json, weights_document
from cls_analysis.diagnosis.effects.probe import ProbeResult, probe
from cls_analysis.diagnosis.findings import AXES, SEVERITIES, Finding
from cls_analysis.diagnosis.measures import FIGURES
from cls_analysis.diagnosis.rules import rule_codes
from cls_analysis.diagnosis.thresholds import THRESHOLDS, Limits
from cls_analysis.files import bundled
from cls_analysis.weights import LayerNorm


@pytest.fixture(scope="module")
def schema():
    """The schema that ships."""
    return json.loads(bundled("diagnosis.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def validator(schema):
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def document_of(*diagnoses, limits=None):
    return diagnosis_document(diagnoses, limits or Limits())


def parsed(text: str):
    """What strict JSON says."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def everything():
    """A Profile of several layers with a mean, a heavy tail, dead dimensions, zero rows and cut ones."""
    x = np.insert(shifted({3: 8}), 5, 7.0, axis=1)
    x[:4] = 0
    x[4, 9] = 60
    constant = np.full_like(x, 0.3)
    return profile_of({0: constant, 1: x[::-1] * 2, 2: x}, source="cls", rows_cut=5)


NORMS = [LayerNorm(layer, "norm", 1.0 + 9.0 * np.eye(1, 64)[0], np.zeros(64)) for layer in (1, 2)]


@pytest.fixture(scope="module")
def whole():
    """A diagnosis with every part: intervals, sufficiency, LayerNorms, probe."""
    diagnosis = diagnose(everything(), layer_norms=NORMS, how_many=True)
    quick = probe(gaussian(40, 4), [row % 2 for row in range(40)], folds=2, repeats=1, steps=5)
    return replace(diagnosis, probe=quick)


@pytest.fixture(scope="module")
def plain():
    """A diagnosis of few rows without anything on top."""
    return diagnose(profile_of(gaussian(20, 32)), intervals=False)


@pytest.fixture(scope="module")
def collapsed():
    return diagnose(profile_of(np.full((40, 8), 0.3)), how_many=True)


# -- the schema ------------------------------------------------------------------------------------------------------


def objects(node, path="$"):
    """Every object schema in a schema."""
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for key, inner in node.items():
            yield from objects(inner, f"{path}.{key}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from objects(inner, f"{path}[{number}]")


def test_schema_is_of_draft_2020_12(schema, validator):
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$defs"]["schema_version"]["const"] == SCHEMA_VERSION


def test_schema_leaves_nothing_open_and_describes_everything(schema):
    found = dict(objects(schema))
    assert len(found) > 15
    for path, node in found.items():
        assert "additionalProperties" in node, path
        assert node["additionalProperties"] is not True, path
        for name, inner in node.get("properties", {}).items():
            assert inner.get("description", "").endswith("."), f"{path}.{name}"
        assert set(node.get("required", ())) <= set(node.get("properties", {})), path
    # Only what is keyed by names of Profiles, limits and packages is open, to values of one kind.
    assert [path.rpartition(".")[2] for path, node in found.items() if node["additionalProperties"] is not False] == [
        "limits",
        "compared",
        "versions",
    ]


def test_schema_has_the_fields_of_a_finding(schema):
    assert list(schema["$defs"]["finding"]["properties"]) == [field.name for field in fields(Finding)]
    assert schema["$defs"]["finding"]["properties"]["axis"]["enum"] == list(AXES)
    assert schema["$defs"]["finding"]["properties"]["severity"]["enum"] == list(SEVERITIES)
    assert set(schema["$defs"]["probe"]["properties"]) == {field.name for field in fields(ProbeResult)}


# -- documents against it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["whole"], ["plain"], ["collapsed"], ["whole", "plain", "collapsed"]])
def test_documents_are_valid_and_strict(request, validator, names):
    document = document_of(*(request.getfixturevalue(name) for name in names))
    again = parsed(to_json(document))
    assert again == document
    validator.validate(again)
    assert again["schema_version"] == 1
    assert len(again["profiles"]) == len(names)


@pytest.mark.parametrize(
    "x",
    [SIGNS[:1], SIGNS[:2], gaussian(50, 1), gaussian(50, 2), np.zeros((9, 3)), SIGNS.astype(np.float16), correlated(1)],
    ids=["one row", "two rows", "d=1", "d=2", "zeros", "float16", "correlated"],
)
def test_edges_are_valid_and_strict(validator, x):
    diagnosis = diagnose(profile_of(x), how_many=True)
    validator.validate(parsed(to_json(document_of(diagnosis, diagnosis))))


@pytest.mark.parametrize("norms", [NORMS, [LayerNorm(1, "norm", np.ones(64), uses=12, on_output=False)]])
def test_documents_of_weights_are_valid_and_strict(validator, norms):
    document = parsed(to_json(weights_document({"one": norms, "other": NORMS})))
    validator.validate(document)
    first = document["weights"][0]
    assert (document["schema_version"], first["encoder"], first["dim"]) == (1, "one", 64)
    assert first["n_layers"] == sum(norm.uses for norm in norms)
    assert first["on_output"] == norms[0].on_output
    assert [definition["dimensions"] for definition in document["weights"][1]["definitions"]] == [[0], []]
    assert [entry["dimension"] for entry in document["weights"][1]["layer_norms"]] == [0, 0]


def test_schema_refuses_what_is_not_described(validator, whole):
    document = document_of(whole)
    assert validator.is_valid(document)
    for spoil in (
        lambda d: d.update(more=1),
        lambda d: d.pop("limits"),
        lambda d: d.update(schema_version=2),
        lambda d: d["profiles"][0].update(extra=1),
        lambda d: d["profiles"][0]["findings"][0].update(extra=1),
        lambda d: d["profiles"][0]["findings"][0].pop("verify"),
        lambda d: d["profiles"][0]["findings"][0].update(severity="bad"),
        lambda d: d["profiles"][0]["findings"][0].update(value="much"),
        lambda d: d["profiles"][0]["figures"][0].pop("null"),
        lambda d: d["profiles"][0]["probe"]["table"][0].update(verdict="good"),
        lambda d: d["profiles"][0]["sufficiency"]["answers"][0].update(enough=None),
        lambda d: d["profiles"][0]["provenance"].update(host="here"),
        lambda d: d["profiles"][0]["undefined"].update(figures=0),
        lambda d: d["limits"].update({"CLS101.bad": 1}),
        lambda d: d.update(weights=[]),
    ):
        spoiled = copy.deepcopy(document)
        spoil(spoiled)
        assert not validator.is_valid(spoiled), spoil


# -- contents --------------------------------------------------------------------------------------------------------


def test_findings_have_the_fields_of_the_contract(whole):
    (entry,) = document_of(whole)["profiles"]
    assert len(entry["findings"]) == len(whole.findings) > 5
    for found, finding in zip(entry["findings"], whole.findings, strict=True):
        assert list(found) == [field.name for field in fields(Finding)]
        assert found["dimensions"] == list(finding.dimensions)
        assert (found["code"], found["layer"], found["value"]) == (finding.code, finding.layer, finding.value)
    assert json.loads(json.dumps(entry["findings"])) == entry["findings"]


def test_what_a_profile_says(whole):
    (entry,) = document_of(whole)["profiles"]
    assert (entry["name"], entry["encoder"], entry["source"]) == ("encoder", "encoder", "cls")
    assert (entry["n"], entry["dim"], entry["sample_rows"], entry["rows_cut"]) == (512, 33, 512, 5)
    assert (entry["layers"], entry["layer"]) == ([0, 1, 2], 2)
    assert entry["verdict"] == whole.verdict()
    assert entry["worst_severity"] == "severe"
    assert entry["recommendation"]["normalization"] == whole.recommended_normalization
    assert [row["figure"] for row in entry["figures"]] == [kind.name for kind in FIGURES]
    assert len(entry["definitions"]) == 10
    assert entry["removal"][0]["change"] == "none"
    assert entry["sufficiency"]["sentence"].startswith("512 rows")
    assert entry["probe"]["n"] == 40
    assert len(entry["probe"]["table"]) == 27
    assert entry["provenance"] == json.loads(whole.profile.provenance.to_json())


def nulls_in(rows) -> int:
    return sum(value is None for row in rows for value in row.values())


def test_undefined_values_are_null_and_counted(whole, plain, collapsed):
    (entry,) = document_of(plain)["profiles"]
    figures = {row["figure"]: row for row in entry["figures"]}
    assert figures["condition_number"]["value"] is None  # 20 rows of 32 dimensions
    assert entry["findings"][0]["null"] is None  # rows per dimension have no null
    # Two ends of each interval that was left out, kurtosis's null, and value and null of the condition number.
    assert entry["undefined"]["figures"] == 2 * len(FIGURES) + 3
    assert entry["undefined"]["conditions"] == nulls_in(entry["conditions"]) > 0
    for diagnosis in (whole, plain, collapsed):
        (entry,) = document_of(diagnosis)["profiles"]
        tables = {key: value for key, value in entry.items() if isinstance(value, list) and key != "layers"}
        if entry["probe"]:
            tables["probe"] = entry["probe"]["table"]
        if entry["sufficiency"]:
            tables |= {key: entry["sufficiency"][key] for key in ("answers", "curve")}
        counted = {key: nulls_in(rows) for key, rows in tables.items() if nulls_in(rows)}
        assert entry["undefined"] == counted
    assert document_of(collapsed)["profiles"][0]["undefined"] == {"findings": 1}
    assert document_of(whole)["profiles"][0]["undefined"]["curve"] > 0


def test_infinities_are_null_too(plain):
    figures = plain.figures.assign(value=np.inf)
    (entry,) = document_of(replace(plain, figures=figures))["profiles"]
    assert all(row["value"] is None for row in entry["figures"])
    assert entry["undefined"]["figures"] >= len(FIGURES)


def test_comparison(plain, collapsed):
    assert document_of(plain)["comparison"] is None
    document = document_of(plain, diagnose(profile_of(stretched({4: 8})), intervals=False), collapsed)
    names = [entry["name"] for entry in document["profiles"]]
    assert len(set(names)) == 3
    rows = {row["figure"]: row for row in document["comparison"]}
    assert list(rows) == [kind.name for kind in FIGURES]
    for row in rows.values():
        assert set(row) == {"figure", "label", "best", "worst", "comparable", *names}
        assert row["best"] in ("", *names)
    assert rows["isoscore"][names[2]] is None
    assert rows["isoscore"]["comparable"] is False
    values = {row["figure"]: row["value"] for row in document["profiles"][1]["figures"]}
    assert {figure: row[names[1]] for figure, row in rows.items()} == values


def test_limits_in_force(plain):
    limits = Limits.of({"CLS101.warning": 0.2}, ["CLS503", "CLS501"], rule_codes())
    document = document_of(plain, limits=limits)
    assert document["limits"] == {key: limit.value for key, limit in THRESHOLDS.items()} | {"CLS101.warning": 0.2}
    assert document["ignored"] == ["CLS501", "CLS503"]


def test_text_stays_readable(whole):
    text = to_json(document_of(whole))
    assert "σ" in text
    assert text.endswith("}\n")
    assert to_json(document_of(whole)) == text
