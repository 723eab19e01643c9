#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the engine and the ops decide from what all ranks share: layouts, shapes, attributes.

    check_local_storage.py [ROOT]

Lists the uses in ops/ of accessors that show one rank's memory (ACCESSORS), and fails for those
that local_storage.txt does not allow. A line there is `<file> <accessor> <uses>: <why ranks
cannot disagree>`. The forward of an op sees one rank's part by design: Call is no accessor."""
import re
import sys
from collections import Counter
from pathlib import Path

ACCESSORS = {
    "storage": r"(?:[.>]storage\(\)|->storage|\bstorage) *(?:==|!=)|== *\w+(?:\.|->)storage\b",
    "version": r"->version\(\)|\brecorded_changes\(\)",
    "is_bound": r"->is_bound\(\)|\.is_bound\(\)",
    "use_count": r"use_count\(\)|is_only_reference\(",
    "is_dense": r"\bis_dense\(\)",
    "is_disturbed": r"\bis_disturbed\(",
    "data": r"\.data *(?:==|!=|&&)|&& *\w+\.data\b|!\w+\.data\b",
    "offset": r"(?:body\(\)|[xy]|body)(?:->|\.)offset *(?:==|!=)",
    "box": r"(?:->|\.)box(?:\(\))?\.shape",
    "local_strides": r"local_strides",
    "local": r"\blocal\(\)",
    "block_numel": r"block\(\)\.numel\(\)",
}
ALLOWED = re.compile(r"(\S+) (\w+) (\d+): (\S.*\S)")


def uses_in(root):
    """{(file, accessor): [line, ..]} of the sources in ops/."""
    uses = {}
    for path in sorted((root / "ops").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in (".cpp", ".h") or name.startswith("ops/testing/"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            for accessor, pattern in ACCESSORS.items():
                for _ in re.findall(pattern, code):
                    uses.setdefault((name, accessor), []).append(number)
    return uses


def problems_in(root):
    uses, allowed = uses_in(root), Counter()
    table = (root / "tests/house/local_storage.txt").read_text()
    for number, line in enumerate(table.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = ALLOWED.fullmatch(line)
        if not match or match[2] not in ACCESSORS:
            yield (f"local_storage.txt:{number}: the line is {line!r}, expected "
                   "file accessor number: reason")
            continue
        allowed[match[1], match[2]] += int(match[3])
    for use, lines in uses.items():
        if len(lines) != allowed[use]:
            where = ", ".join(map(str, lines))
            yield (f"{use[0]}:{where}: {len(lines)} uses of {use[1]}, expected {allowed[use]} as "
                   "in local_storage.txt; decide from layouts, shapes or attributes, or state "
                   "there why ranks cannot disagree")
    for use in allowed.keys() - uses.keys():
        yield f"local_storage.txt: {use[0]} has no use of {use[1]}, expected {allowed[use]}"


if __name__ == "__main__":
    found = list(problems_in(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found))
    sys.exit(bool(found))
