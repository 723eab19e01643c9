#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the sources under ROOT against ROOT/tests/floors.txt and the limits of the project.

Files include only lower layers (floors), and no folders include each other in a cycle. From nn
upward, other folders are included only through <weft/...>. Public headers include only weft and the
standard library; every folder and public header has a layer. Also checks the size, width and
licence line of each file, the size of each function (but tables), and the suite names of tests.
Prints one line for each violation; exit code 1 if there is any.
"""
import re
import sys
from pathlib import Path

from functions import functions

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake", ".txt"}
COLUMNS = 100
HEADER_LINES, FILE_LINES, TEST_LINES, FUNCTION_LINES = 200, 400, 600, 60
LICENCE = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
STANDARD = re.compile(r"[a-z_0-9]+")  # <vector>, <cstdint>: no slash, no dot
SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.M)
QUOTED_PATHS = "a quoted include starts at the root or is weft/..."


class Table:
    """The level of each floor, and the floor of each folder and public header."""

    def __init__(self, text):
        self.level, self.folders, self.inside, self.free, self.headers = {}, {}, set(), set(), {}
        self.others, self.errors = {}, []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if words and not self.read(words):
                self.errors.append(f"tests/floors.txt:{number}: not understood: {line.strip()}")
        self.check()

    def read(self, words):
        kind, *rest = words
        if kind == "order":
            # A second row goes on above the first.
            first = max(self.level.values(), default=-1) + 1
            for level, names in enumerate(" ".join(rest).split("<-"), first):
                self.level |= {name.strip(): level for name in names.split("|")}
        elif kind == "folder" and (len(rest) == 1 or rest[1:] == ["inside"]):
            floor = rest[0].rsplit("/", 1)[-1]
            self.folders[rest[0]] = floor
            self.inside |= {floor} if rest[1:] else set()
        elif kind == "free" and len(rest) == 1:
            self.free.add(rest[0])
        elif kind == "header" and len(rest) >= 2:
            self.headers[rest[0]] = rest[1]
            self.others[rest[0]] = rest[2:]
        else:
            return False
        return True

    def check(self):
        for name, floor in (self.folders | self.headers).items():
            if floor not in self.level:
                self.errors.append(f"tests/floors.txt: {name}: {floor} is no floor of `order`")

    def floor_of(self, path):
        """The floor of a file: that of the nearest folder above it that has one."""
        parts = path.split("/")
        for end in range(len(parts) - 1, 0, -1):
            if "/".join(parts[:end]) in self.folders:
                return self.folders["/".join(parts[:end])]
        return None

    def sees(self, upper, lower):
        return upper == lower or self.level[lower] < self.level[upper]


def files(root):
    """Relative paths of all files of the project, without build and hidden folders except .ci."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(p.startswith(".") and p != ".ci" or p == "__pycache__" for p in parts)
        if not hidden and parts[0] != "build" and path.is_file():
            yield path.relative_to(root)


def included(text):
    """Yields (line number, bracket, name) of every include."""
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
        elif other in table.others[name]:
            continue
        elif bracket == '"' or not STANDARD.fullmatch(other):
            yield f"{path}:{line}: a public header includes weft/... and std headers, not {other}"


def check_face(table, where, floor, header):
    other = table.headers.get(header)
    if other is None:
        yield f"{where}: {header} is not in tests/floors.txt"
    elif not table.sees(floor, other):
        yield f"{where}: {floor} includes {header} of floor {other}: includes point down only"


def check_source(table, path, text):
    floor = table.floor_of(path.as_posix())
    for line, bracket, other in included(text):
        where, first = f"{path}:{line}", other.split("/")[0]
        lower = table.floor_of(other)
        if first == "weft":
            yield from check_face(table, where, floor, other)
        elif lower:
            if not table.sees(floor, lower):
                yield f"{where}: {floor} includes {other}: includes point down only"
            elif lower != floor and floor not in table.inside:
                yield f"{where}: {floor} reaches {lower} through <weft/...> only, not {other}"
        elif first in table.free:
            yield f"{where}: {floor} includes {other}: {first} is on no floor"
        elif bracket == '"':
            yield f"{where}: {other}: {QUOTED_PATHS}"


def folders_included(table, path, text):
    """Yields (folder, other folder that it may include) for each include of `path`."""
    own, floor = path.parent.as_posix(), table.floor_of(path.as_posix())
    for _, _, other in included(text):
        folder, lower = other.rsplit("/", 1)[0], table.floor_of(other)
        if lower and folder != own and table.sees(floor, lower):
            yield own, folder


def reachable(graph, start):
    seen, todo = set(), [start]
    while todo:
        for folder in graph.get(todo.pop(), ()):
            if folder not in seen:
                seen.add(folder)
                todo.append(folder)
    return seen


def check_cycles(graph):
    """Yields a line for each pair of folders that include each other, directly or not."""
    reached = {folder: reachable(graph, folder) for folder in graph}
    for folder in sorted(graph):
        for other in sorted(graph[folder]):
            if folder < other and folder in reached.get(other, ()):
                yield f"{folder} and {other} include each other: no cycle between folders"


def check_suites(path, text):
    """tests/CMakeLists.txt finds a file's suite by its name; any other suite would never run."""
    expected = "".join(word[:1].upper() + word[1:] for word in path.stem.split("_")[:-1])
    for suite in sorted(set(SUITE.findall(text)) - {expected}):
        yield f"{path}: suite {suite} never runs, the one of this file is called {expected}"


def line_limit(path):
    if path.parts[0] == "tests":
        return TEST_LINES
    return HEADER_LINES if path.suffix == ".h" else FILE_LINES


def is_table_of_bindings(path, function):
    return path.as_posix().startswith("python/bindings/") and function.name.startswith("bind_")


def check_functions(path, text):
    for function in functions(path, text):
        if function.lines <= FUNCTION_LINES or function.is_table:
            continue
        if not is_table_of_bindings(path, function):
            yield (f"{path}:{function.line}: {function.name}: {function.lines} lines, at most "
                   f"{FUNCTION_LINES}")


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
    seen, graph = set(), {}
    for path in filter(is_text_of_the_house, files(root)):
        text = (root / path).read_text()
        yield from check_form(path, text)
        if path.suffix in SOURCES | {".py"}:
            yield from check_functions(path, text)
        if path.suffix not in SOURCES:
            continue
        seen.add(path.parts[0])
        if path.parts[0] == "include":
            seen.add(path.relative_to("include").as_posix())
            yield from check_public_header(table, path, text)
        elif table.floor_of(path.as_posix()):
            yield from check_source(table, path, text)
            for own, other in folders_included(table, path, text):
                graph.setdefault(own, set()).add(other)
        elif path.name.endswith("_test.cpp"):
            yield from check_suites(path, text)
        elif path.parts[0] not in table.free:
            yield f"{path}: folder {path.parent} has no floor in tests/floors.txt"
    yield from check_cycles(graph)
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
