# SPDX-License-Identifier: Apache-2.0
"""The `weft` command of an installed package: the program beside the library."""

import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).parent / "bin" / "weft"
    os.execv(program, ["weft", *sys.argv[1:]])
