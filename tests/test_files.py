"""Files appear whole or not at all; a folder belongs to one process; bundled files are found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cls_analysis.errors import ClsAnalysisError, DataError
from cls_analysis.files import bundled, locked, make_folder, whole_file, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_whole_file_appears_only_at_the_end(tmp_path):
    path = tmp_path / "new" / "result.csv"
    with whole_file(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == path.parent
        assert temporary.suffix == ".csv"  # writers that look at the suffix choose the right format
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert names(path.parent) == ["result.csv"]


def test_failure_leaves_the_old_file_and_no_litter(tmp_path):
    path = write_text(tmp_path / "a.txt", "old")

    def write_half(temporary):
        temporary.write_text("ne")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), whole_file(path) as temporary:
        write_half(temporary)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_result_is_as_readable_as_any_file(tmp_path):
    previous = os.umask(0o027)
    try:
        path = write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o640


def test_write_text_is_utf8_with_plain_newlines(tmp_path):
    assert write_text(tmp_path / "a.txt", "σ²\n").read_bytes() == "σ²\n".encode()


def test_what_stands_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*cannot be made a folder"):
        make_folder(tmp_path / "file" / "sub")
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    with pytest.raises(DataError, match=r"folder: cannot be written"):
        write_text(tmp_path / "folder", "x")
    assert names(tmp_path) == ["file", "folder"]


def test_second_process_is_refused_at_once(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from cls_analysis.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ClsAnalysisError, match=r"another process is writing here"), locked(tmp_path):
            pass
        holder.communicate("")
    assert holder.returncode == 0
    with locked(tmp_path / "new"), locked(tmp_path):  # free again; folders are made where missing
        pass


def test_lock_is_released_after_a_failure(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        _ = 1 / 0
    with locked(tmp_path):
        pass


def test_bundled():
    assert bundled("samples/paraphrase.csv").is_file()
    with pytest.raises(DataError, match=r"no-such\.csv: not among the bundled files"):
        bundled("no-such.csv")
