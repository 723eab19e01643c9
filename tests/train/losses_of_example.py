#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the losses that an example prints with PyTorch's, of a file in tests/reference:
losses_of_example.py FILE NAME COMMAND..."""

import json
import pathlib
import re
import subprocess
import sys

file, name, *command = sys.argv[1:]
reference = pathlib.Path(__file__).parent.parent / "reference" / file
out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", out)]
expected = json.loads(reference.read_text())[name]
if len(losses) != len(expected):
    sys.exit(f"it printed {len(losses)} losses, expected {len(expected)}:\n{out}")
most = max(abs(a - b) for a, b in zip(losses, expected))
print(f"losses differ by at most {most:.1e}")
sys.exit(0 if most <= 1e-4 else f"that is more than 1e-4:\n{out}")
