"""The package as a whole: its names, its data, its wheel, its numbers on real data."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import cls_analysis as ca
from cls_analysis.workflows.extract import extract
from cls_analysis.workflows.options import TextOptions

ROOT = Path(__file__).parents[1]


def modules() -> list[str]:
    return [info.name for info in pkgutil.walk_packages(ca.__path__, "cls_analysis.") if "__main__" not in info.name]


def test_every_public_name_is_there():
    assert all(getattr(ca, name) is not None for name in ca.__all__)
    assert set(ca.__all__) <= set(dir(ca))
    with pytest.raises(AttributeError, match="no attribute 'profile_everything'"):
        _ = ca.profile_everything


def test_no_public_function_bears_a_modules_name():
    names = {name.rpartition(".")[2] for name in modules()}
    assert not names & {name for name in ca.__all__ if inspect.isfunction(getattr(ca, name))}


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_it_holds(name):
    assert importlib.import_module(name).__doc__


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, cls_analysis; print({'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_last_layer_of_minilm_on_cola(glue_dir, tmp_path):
    """Reference values, made once with another program (NumPy alone) on the same vectors."""
    (done,) = extract("embedded", ["glue/cola@dev"], tmp_path, text_options=TextOptions(data_dir=glue_dir))
    table = ca.summarize(done.profile).set_index("layer")
    last = table.loc[6]
    expected = {
        "common_mean_share": 0.6267,
        "average_cosine": 0.6332,
        "top1_energy_share": 0.5460,
        "isoscore": 0.1620,
        "ev1": 0.0738,
    }
    assert last["n"] == 1043
    for column, value in expected.items():
        assert last[column] == pytest.approx(value, abs=5e-4), column
    described = ca.describe(done.profile)
    at_last = described[described["layer"] == 6]
    assert at_last["energy_share"].idxmax() - at_last.index[0] == 99
    assert np.flatnonzero(done.profile[6].dead).tolist() == [127, 223, 319]
    assert last["n_constant"] == 3
    undefined = ["average_cosine", "isoscore", "ev1", "mean_abs_correlation", "std_ratio", "max_kurtosis_excess"]
    assert table.loc[0, undefined].isna().all()
    assert table.loc[0, "n_constant"] == 384


@pytest.mark.parametrize("name", ["acceptability", "paraphrase", "questions", "sentiment"])
def test_samples_extract_with_every_row(embedded, name):
    texts = ca.load_texts(f"sample:{name}")
    profile = ca.compute_profile(embedded, texts, layers=[-1])
    assert profile.n == len(texts) >= 300


def test_the_wheel_runs_the_demo_elsewhere(tmp_path):
    """Built, installed in a second environment, run outside the checkout; dependencies are lent from this one."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, capture_output=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # A path file lends the packages; the checkout's own (editable) entry is not followed from there.
    (Path(site) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    where = subprocess.run(
        [python, "-c", "import cls_analysis; print(cls_analysis.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    ).stdout
    assert where.startswith(str(tmp_path / "venv"))
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "cls-analysis", "demo", "--out", "out"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").rglob("*.safetensors"))) == 4
    assert len(list((tmp_path / "out" / "figures").glob("*.png"))) == 8
    assert "wrote" in done.stderr
