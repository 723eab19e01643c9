#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each source under ROOT includes the standard headers whose names it uses.

A header counts as included if the file, or a header of weft that the file includes, includes it
outside of #if. Unity builds and builds with CUDA hide a missing include.
Prints one line for each violation; exit code 1 if there is any.
"""
import functools
import re
import sys
from pathlib import Path

from check_floors import files

# Names of std:: that only this header, or one that includes it, declares completely.
NAMES = {
    "algorithm": "sort stable_sort any_of all_of none_of find_if lower_bound upper_bound clamp",
    "array": "array",
    "atomic": "atomic atomic_ref atomic_flag memory_order_relaxed memory_order_acquire",
    "barrier": "barrier",
    "bit": "bit_cast countr_zero bit_width popcount",
    "chrono": "chrono",
    "complex": "complex",
    "condition_variable": "condition_variable condition_variable_any",
    "deque": "deque",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "function",
    "latch": "latch",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared",
    "mutex": "mutex recursive_mutex lock_guard unique_lock scoped_lock call_once once_flag",
    "numbers": "numbers",
    "numeric": "accumulate iota gcd lcm inner_product exclusive_scan",
    "optional": "optional nullopt",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 random_device",
    "regex": "regex",
    "set": "set multiset",
    "shared_mutex": "shared_mutex shared_lock",
    "span": "span",
    "sstream": "ostringstream istringstream stringstream",
    "string": "string to_string",
    "string_view": "string_view",
    "thread": "thread jthread this_thread",
    "tuple": "tuple tie",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "variant": "variant visit holds_alternative monostate",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
# Headers that declare the names of others completely.
ALSO = {"pybind11/stl.h": {"deque", "list", "map", "optional", "set", "unordered_map", "variant",
                           "vector"}}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


@functools.cache
def directly(path):
    """Returns the other libraries' headers and weft's files that a file includes outside of #if."""
    outer, own, depth = set(), [], 0
    for line in path.read_text().splitlines():
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        found = INCLUDE.match(line)
        if found and not depth:
            (own.append if found[1] == '"' else outer.add)(found[2])
    return outer, own


def included(root, path):
    """Returns the other libraries' headers that a file includes, itself or through weft's."""
    outer, reached = set(), [path]
    for file in reached:
        names, own = directly(file)
        outer |= names
        for name in own:
            for place in (root / "include" / name, root / name):
                if place.exists() and place not in reached:
                    reached.append(place)
    return outer.union(*(ALSO.get(header, set()) for header in outer))


def violations(root):
    for name in files(root):
        if name.suffix not in (".h", ".cpp", ".cu") or name.parts[0] == "tests":
            continue
        path = root / name
        text = re.sub(r"//.*|#\s*include.*|\"(?:\\.|[^\"\\])*\"", "", path.read_text())
        used = {HEADER_OF[n] for n in re.findall(r"\bstd::(\w+)", text) if n in HEADER_OF}
        for header in sorted(used - included(root, path)):
            yield f"{name}: uses std names of <{header}>, which it does not include"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check_includes.py ROOT")
    found = list(violations(Path(sys.argv[1])))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
