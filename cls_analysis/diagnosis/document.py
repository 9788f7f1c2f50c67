"""A diagnosis as a document of plain values: what the JSON holds. Its schema is ``data/diagnosis.schema.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from cls_analysis.diagnosis.agreement import Definition, layer_norm_definitions, layer_norm_table
from cls_analysis.diagnosis.comparing import comparison_table, names_of
from cls_analysis.diagnosis.sufficiency import Sufficiency
from cls_analysis.diagnosis.thresholds import THRESHOLDS, Limits
from cls_analysis.diagnosis.verdict import Diagnosis
from cls_analysis.weights import LayerNorm

#: Version of the layout; it changes when a reader of the old one would misread the new.
SCHEMA_VERSION = 1


def diagnosis_document(diagnoses: Sequence[Diagnosis], limits: Limits) -> dict[str, Any]:
    """Everything that ``diagnoses`` say. What is undefined is None, and ``undefined`` counts it by table.

    The comparison repeats values of ``figures`` and has no count of its own.
    """
    several = len(diagnoses) > 1
    return {
        "schema_version": SCHEMA_VERSION,
        "profiles": [_profile(diagnosis, name) for diagnosis, name in zip(diagnoses, names_of(diagnoses), strict=True)],
        "comparison": _rows(comparison_table(diagnoses)) if several else None,
        "limits": {key: limits[key] for key in THRESHOLDS},
        "ignored": sorted(limits.ignored),
    }


def weights_document(norms_of: Mapping[str, Sequence[LayerNorm]]) -> dict[str, Any]:
    """What the LayerNorm weights of each encoder say, without any text."""
    return {
        "schema_version": SCHEMA_VERSION,
        "weights": [
            {
                "encoder": name,
                "n_layers": sum(norm.uses for norm in norms),
                "dim": len(norms[0].weight),
                "on_output": all(norm.on_output for norm in norms),
                "definitions": [_definition(definition) for definition in layer_norm_definitions(norms)],
                "layer_norms": _rows(layer_norm_table(norms)),
            }
            for name, norms in norms_of.items()
        ],
    }


def to_json(document: Mapping[str, Any]) -> str:
    """Strict JSON, indented."""
    return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _profile(diagnosis: Diagnosis, name: str) -> dict[str, Any]:
    profile, origin = diagnosis.profile, diagnosis.profile.provenance
    tables = {
        "findings": [_plain(asdict(finding)) for finding in diagnosis.findings],
        "definitions": [_definition(definition) for definition in diagnosis.definitions],
        "figures": _rows(diagnosis.figures),
        "conditions": _rows(diagnosis.conditions),
        "contributions": _rows(diagnosis.contributions),
        "removal": _rows(diagnosis.removal),
    }
    probe = None if diagnosis.probe is None else _probe(diagnosis.probe)
    sufficiency = None if diagnosis.sufficiency is None else _sufficiency(diagnosis.sufficiency)
    nested = {} if probe is None else {"probe": probe["table"]}
    if sufficiency is not None:
        nested |= {"answers": sufficiency["answers"], "curve": sufficiency["curve"]}
    return {
        "name": name,
        "encoder": profile.encoder,
        "dataset": profile.dataset,
        "source": origin.source,
        "dtype": origin.dtype,
        "n": profile.n,
        "dim": profile.dim,
        "sample_rows": len(profile[diagnosis.layer].sample),
        "rows_cut": origin.rows_cut,
        "layers": list(profile.layers),
        "layer": diagnosis.layer,
        "verdict": diagnosis.verdict(),
        "worst_severity": diagnosis.worst_severity,
        "recommendation": asdict(diagnosis.recommendation),
        **tables,
        "probe": probe,
        "no_probe": diagnosis.no_probe,
        "sufficiency": sufficiency,
        "undefined": {key: count for key, rows in (tables | nested).items() if (count := _undefined(rows))},
        "provenance": json.loads(origin.to_json()),
    }


def _probe(probe: Any) -> dict[str, Any]:
    numbers = {key: value for key, value in vars(probe).items() if key != "table"}
    return {**{key: _plain(value) for key, value in numbers.items()}, "table": _rows(probe.table)}


def _sufficiency(sufficiency: Sufficiency) -> dict[str, Any]:
    return {
        "sentence": sufficiency.sentence(),
        "answers": _rows(sufficiency.answers),
        "curve": _rows(sufficiency.curve),
    }


def _definition(definition: Definition) -> dict[str, Any]:
    return dict(_plain(asdict(definition)))


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _undefined(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(value is None for row in rows for value in row.values())


def _plain(value: Any) -> Any:
    """``value`` without NumPy types; what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
