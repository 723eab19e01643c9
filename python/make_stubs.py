#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes _weft.pyi, the types of the compiled module, by pybind11-stubgen.

    python make_stubs.py PACKAGE/weft/_weft.pyi

PACKAGE is the folder that holds the package with its compiled module. The build runs this script
after it links the module.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

# pybind11-stubgen would turn an exception that names weft as its module into an import.
COMM_ERROR = '''class CommError(RuntimeError):
    """
    A collective that could not end: a rank threw, died, never came or called something else.
    """
    rank: int
    operation: str
    sequence: int
'''


def with_builtins(text):
    """Spells Python's int, float and bool in signatures as builtins, because weft.bool is a dtype
    and Tensor has methods of these names."""

    def spelt(text, names):
        named = rf"(?<!def )(?<![\w.])({names})\b"
        return re.sub(
            r"^ *def .*$", lambda line: re.sub(named, r"builtins.\1", line[0]), text, flags=re.M
        )

    text = spelt(text, "bool")
    start = text.index("\nclass Tensor:") + 1
    end = text.index("\nclass ", start) if "\nclass " in text[start:] else len(text)
    return text[:start] + spelt(text[start:end], "float|int") + text[end:]


def with_methods(text):
    """Writes functions of the module that are methods of Tensor too as methods; pybind11-stubgen
    takes them for static ones. Communicator.from_mpi is one."""
    first = r"\(\w+: (?:Tensor[^,)]*|typing\.Any)"
    decorated = r"    @staticmethod\n((?:    @typing\.overload\n)?    def (?!from_mpi\b)\w+)"
    text = re.sub(decorated + first, r"\1(self", text)
    # Functions of Python that are methods, which take the tensor first, too.
    given = r"\((?:input, )?(?=\*(?:given|args|tensors)\b)"
    return re.sub(decorated + given, r"\1(self, ", text)


def with_shown_functions(text):
    """Writes functions that are shown under another name, which pybind11-stubgen takes for aliases
    of themselves, from the first line of their docstring."""
    from weft import _weft

    def written(alias):
        first, _, doc = getattr(_weft, alias[1]).__doc__.strip().partition("\n")
        first = re.sub(r"(?<=: )object\b|(?<=-> )object\b", "typing.Any", first)
        doc = doc.strip().replace("\n", "\n    ")
        return f'def {alias[1]}{first[first.index("(") :]}:\n    """\n    {doc}\n    """'

    return re.sub(r"^(_\w+) = \1$", written, text, flags=re.M)


def stubs():
    """Returns the text of the stub file of the package that `sys.path` has first."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pybind11_stubgen", "weft._weft", "-o", folder],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
        if done.returncode != 0 or errors:
            raise RuntimeError("pybind11-stubgen: " + "\n".join(errors or [done.stderr]))
        text = (pathlib.Path(folder) / "weft" / "_weft.pyi").read_text()
    text = text.replace("from weft import CommError\n", "")
    text = re.sub(r"^__version__: str = .*$", "__version__: str", text, flags=re.M)
    text = with_methods(with_shown_functions(text))
    text = with_builtins(text.replace("import numpy\n", "import builtins\nimport numpy\n", 1))
    first_class = text.index("\nclass ") + 1
    return text[:first_class] + COMM_ERROR + text[first_class:]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    stub = pathlib.Path(sys.argv[1])
    # The package's sources are next to this script, but the compiled module is not.
    sys.path[0] = str(stub.absolute().parent.parent)
    stub.write_text(stubs())
