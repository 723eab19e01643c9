# SPDX-License-Identifier: Apache-2.0
"""Checks what the package answers about itself, and what it refuses when it is imported."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

import weft
from weft import _load, _program

_FLAGS = "fpu sse4_2 avx avx2 fma bmi1 bmi2 f16c movbe abm"


def _cpuinfo(path, flags):
    path.write_text(f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n\n")
    return path


@pytest.mark.skipif(platform.machine() != "x86_64", reason="another architecture")
def test_older_processor_is_refused(tmp_path):
    _load._refuse_old_processor(_cpuinfo(tmp_path / "new", _FLAGS))
    old = _cpuinfo(tmp_path / "old", _FLAGS.replace(" avx2", "").replace(" abm", ""))
    message = "^weft: this processor lacks avx2, abm, expected x86-64-v3 or newer$"
    with pytest.raises(ImportError, match=message):
        _load._refuse_old_processor(old)


def test_processor_of_unknown_flags_is_not_refused(tmp_path):
    _load._refuse_old_processor(tmp_path / "missing")
    (tmp_path / "other").write_text("processor : 0\n")
    _load._refuse_old_processor(tmp_path / "other")


def _answer(*arguments):
    command = [sys.executable, "-m", "weft", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_prefix_has_the_program():
    code, prefix, _ = _answer("--prefix")
    assert code == 0
    program = pathlib.Path(prefix) / "bin" / "weft"
    assert program.samefile(_program._program())
    assert _answer("--version") == (0, f"weft {weft.__version__}", "")


def test_cmake_dir_is_one_sentence_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(_program, "_prefix", lambda: tmp_path)
    message = "has no CMake files; install the wheel, the package libweft-dev, or by cmake --inst"
    with pytest.raises(RuntimeError, match=message):
        _program._cmake_dir()
    for folder in ("lib64", "lib/x86_64-linux-gnu"):
        os.makedirs(tmp_path / folder / "cmake" / "weft")
        assert _program._cmake_dir() == tmp_path / folder / "cmake" / "weft"
        os.rmdir(tmp_path / folder / "cmake" / "weft")


def test_missing_program_is_one_sentence(tmp_path, monkeypatch):
    module = tmp_path / "weft" / "_weft.so"
    monkeypatch.setattr(sys.modules["weft._weft"], "__file__", str(module))
    message = "^weft: the program next to the package is missing; build the target weft_program$"
    with pytest.raises(RuntimeError, match=message):
        _program._program()
    monkeypatch.setattr(sys, "argv", ["weft", "--prefix"])
    with pytest.raises(SystemExit, match=message):
        _program.main()


def test_library_of_weft_cuda_is_taken(tmp_path):
    with open("/proc/self/maps") as maps:
        library = next(line.split()[-1] for line in maps if "/libweft.so" in line)
    package = tmp_path / "weft_cuda"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    soname = ".".join(pathlib.Path(library).name.split(".")[:4])
    shutil.copy(library, package / "lib" / soname)
    code = (
        "import weft; from weft import _program; print(_program._program());"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '/libweft.so' in line})"
    )
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(package / "bin" / "weft"), str(package / "lib" / soname)]


def test_needs_little_static_tls():
    # The library is loaded late, after others that share the space. 128 bytes of its 512 optional
    # ones are left here.
    environment = dict(os.environ, GLIBC_TUNABLES="glibc.rtld.optional_static_tls=128")
    done = subprocess.run(
        [sys.executable, "-c", "import weft"], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
