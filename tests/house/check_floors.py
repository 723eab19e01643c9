#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the sources under ROOT against ROOT/tests/floors.txt and the limits of the house.

Includes point down only; from nn upward other folders are reached only through <weft/...>; public
headers include nothing but weft and the standard library; every folder and every public header has
its floor; size, width and licence line of each file and the suite names of tests are checked too.
Prints one line a violation; exit code 1 if there is any.
"""
import re
import sys
from pathlib import Path

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake", ".txt"}
COLUMNS = 100
PUBLIC_HEADER_LINES, FILE_LINES, TEST_LINES = 200, 400, 600
LICENCE = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
STANDARD = re.compile(r"[a-z_0-9]+")  # <vector>, <cstdint>: no slash, no dot
SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.M)
QUOTED_ROOMS = "a quoted include starts at the root or is weft/..."


class Table:
    """The floors: level of each, who is beside whom, and where folders and public headers stand."""

    def __init__(self, text):
        self.level, self.folders, self.inside, self.free, self.headers = {}, set(), set(), set(), {}
        self.errors = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if words and not self.read(words):
                self.errors.append(f"tests/floors.txt:{number}: not understood: {line.strip()}")
        self.check()

    def read(self, words):
        kind, *rest = words
        if kind == "order":
            for level, names in enumerate(" ".join(rest).split("<-")):
                self.level |= {name.strip(): level for name in names.split("|")}
        elif kind == "folder" and (len(rest) == 1 or rest[1:] == ["inside"]):
            self.folders.add(rest[0])
            self.inside |= set(rest[:1] if rest[1:] else [])
        elif kind == "free" and len(rest) == 1:
            self.free.add(rest[0])
        elif kind == "header" and len(rest) == 2:
            self.headers[rest[0]] = rest[1]
        else:
            return False
        return True

    def check(self):
        named = {f: f for f in self.folders} | self.headers
        for name, floor in named.items():
            if floor not in self.level:
                self.errors.append(f"tests/floors.txt: {name}: {floor} is no floor of `order`")

    def sees(self, upper, lower):
        return upper == lower or self.level[lower] < self.level[upper]


def files(root):
    """Every file of the project, relative, build folders and hidden ones left out (.ci is not)."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(p.startswith(".") and p != ".ci" or p == "__pycache__" for p in parts)
        if not hidden and parts[0] != "build" and path.is_file():
            yield path.relative_to(root)


def included(text):
    """(line number, bracket, name) of every include."""
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match[1], match[2]


def check_public_header(table, path, text):
    name = path.relative_to("include").as_posix()
    floor = table.headers.get(name)
    if floor is None:
        yield f"{path}: has no floor in tests/floors.txt (header {name} FLOOR)"
        return
    if "#pragma once" not in text:
        yield f"{path}: has no #pragma once"
    for line, bracket, other in included(text):
        if other.startswith("weft/"):
            yield from check_face(table, f"{path}:{line}", floor, other)
        elif bracket == '"' or not STANDARD.fullmatch(other):
            yield f"{path}:{line}: a public header includes weft/... and std headers, not {other}"


def check_face(table, where, floor, header):
    other = table.headers.get(header)
    if other is None:
        yield f"{where}: {header} is not in tests/floors.txt"
    elif not table.sees(floor, other):
        yield f"{where}: {floor} includes {header} of floor {other}: includes point down only"


def check_source(table, path, text):
    folder = path.parts[0]
    for line, bracket, other in included(text):
        where, first = f"{path}:{line}", other.split("/")[0]
        if first == "weft":
            yield from check_face(table, where, folder, other)
        elif first in table.folders:
            if not table.sees(folder, first):
                yield f"{where}: {folder} includes {other}: includes point down only"
            elif first != folder and folder not in table.inside:
                yield f"{where}: {folder} reaches {first} through <weft/...> only, not {other}"
        elif first in table.free:
            yield f"{where}: {folder} includes {other}: {first} is on no floor"
        elif bracket == '"':
            yield f"{where}: {other}: {QUOTED_ROOMS}"


def check_suites(path, text):
    """tests/CMakeLists.txt finds the suite of a file by its name: another one would never run."""
    expected = "".join(word[:1].upper() + word[1:] for word in path.stem.split("_")[:-1])
    for suite in sorted(set(SUITE.findall(text)) - {expected}):
        yield f"{path}: suite {suite} never runs, the one of this file is called {expected}"


def line_limit(path):
    if path.parts[0] == "include":
        return PUBLIC_HEADER_LINES
    return TEST_LINES if path.parts[0] == "tests" else FILE_LINES


def check_form(path, text):
    lines = text.splitlines()
    if len(lines) > line_limit(path):
        yield f"{path}: {len(lines)} lines, at most {line_limit(path)}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS}"
    if path.suffix not in {".cmake", ".txt"} and not any(LICENCE in line for line in lines[:2]):
        yield f"{path}: the first line is not `{LICENCE}`"
    if path.name == "CMakeLists.txt" and re.search(r"file\s*\(\s*GLOB", text):
        yield f"{path}: lists its files by GLOB"


def is_text_of_the_house(path):
    folder = path.parts[0]
    script = folder in {"scripts", ".ci"} and not path.suffix
    return path.suffix in SOURCES | SCRIPTS or script


def violations(root):
    table = Table((root / "tests/floors.txt").read_text())
    yield from table.errors
    if table.errors:
        return
    seen = set()
    for path in filter(is_text_of_the_house, files(root)):
        text = (root / path).read_text()
        yield from check_form(path, text)
        if path.suffix not in SOURCES:
            continue
        seen.add(path.parts[0])
        if path.parts[0] == "include":
            seen.add(path.relative_to("include").as_posix())
            yield from check_public_header(table, path, text)
        elif path.parts[0] in table.folders:
            yield from check_source(table, path, text)
        elif path.name.endswith("_test.cpp"):
            yield from check_suites(path, text)
        elif path.parts[0] not in table.free:
            yield f"{path}: folder {path.parts[0]} has no floor in tests/floors.txt"
    for header in sorted(set(table.headers) - seen):
        yield f"tests/floors.txt: header {header} does not exist"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(violations(Path(sys.argv[1])))
    for violation in found:
        print(violation)
    print(f"{len(found)} violations of the house's rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
