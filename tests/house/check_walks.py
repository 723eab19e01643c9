#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the functions which docs/architecture.md walks through exist.

    check_walks.py [ROOT]

A row of a walk begins with `function` and `file` in backticks. The file must define the function,
of that class where the name has one, or declare it inside the class."""
import re
import sys
from pathlib import Path

PAGE = "docs/architecture.md"
ROW = re.compile(r"^\| `([\w:]+)` \| `([\w./]+)` \|")
LEAST = 40


def is_defined(name, text):
    scope, _, function = name.rpartition("::")
    whole = rf"\b{re.escape(name)}\("
    inside = rf"(class|struct) {re.escape(scope)}\b(.|\n)*?\b{re.escape(function)}\("
    return any(
        re.search(pattern, text) for pattern in ([whole, inside] if scope else [whole])
    )


def problems_in(root, least=LEAST):
    rows = 0
    for number, line in enumerate((root / PAGE).read_text().splitlines(), 1):
        row = ROW.match(line)
        if not row:
            continue
        rows += 1
        name, file = row.groups()
        path = root / file
        if not path.is_file():
            yield f"{PAGE}:{number}: the file {file} is missing"
        elif not is_defined(name, path.read_text()):
            yield f"{PAGE}:{number}: {file} has no function {name}"
    if rows < least:
        yield f"{PAGE}: {rows} functions in walks, expected at least {least}"


if __name__ == "__main__":
    found = list(problems_in(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print(*found, sep="\n")
    sys.exit(bool(found))
