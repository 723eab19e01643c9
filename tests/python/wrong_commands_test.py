# SPDX-License-Identifier: Apache-2.0
"""44 wrong commands: each ends with its exit code and one true sentence."""

import os
import subprocess

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
CASES = [
    ("", 2, "weft: A subcommand is required; see --help"),
    ("trian", 2, "weft: there is no command \"trian\"; see weft --help"),
    ("train", 2, "weft: --data is required; see --help"),
    ("train --data /no/such", 2, "weft: data: cannot open /no/such: No such file or directory"),
    (
        "train --data /etc/passwd --steps x",
        2,
        "weft: --steps is x, expected a whole number from 1 to 2147483647",
    ),
    (
        "train --data /etc/passwd --steps -1",
        2,
        "weft: --steps is -1, expected a whole number from 1 to 2147483647",
    ),
    ("train --data /etc/passwd --lr nan", 2, "weft: --lr is nan, expected a finite number above 0"),
    ("train --data /etc/passwd --lr -1", 2, "weft: --lr is -1, expected a finite number above 0"),
    (
        "train --data /etc/passwd --ranks 0",
        2,
        "weft: --ranks is 0, expected a whole number from 1 to 1024",
    ),
    (
        "train --data /etc/passwd --ranks 100000",
        2,
        "weft: --ranks is 100000, expected a whole number from 1 to 1024",
    ),
    (
        "train --data /etc/passwd --mesh dp=3 --ranks 2",
        2,
        "weft: --mesh dp=3 has 3 ranks but --ranks is 2",
    ),
    (
        "train --data /etc/passwd --mesh dp",
        2,
        "weft: --mesh \"dp\": \"dp\" is not an axis; write for example dp=4",
    ),
    (
        "train --data /etc/passwd --strategy zero9",
        2,
        "weft: strategy: name is \"zero9\", expected one of full_shard, zero2,",
    ),
    (
        "train --data /etc/passwd --model nosuch",
        2,
        "weft: llama config: \"nosuch\" does not exist, expected tiny, small or",
    ),
    (
        "train --data /etc/passwd --batch 0",
        2,
        "weft: --batch is 0, expected a whole number from 1 to 2147483647",
    ),
    (
        "train --data /etc/passwd --seq 0",
        2,
        "weft: --seq is 0, expected a whole number from 1 to 2147483647",
    ),
    (
        "train --data /etc/passwd --resume /no/such --steps 1",
        2,
        "weft: --resume /no/such is not a directory",
    ),
    (
        "train --data /etc/passwd --init /no/such --steps 1",
        2,
        "weft: --init /no/such is not a directory",
    ),
    (
        "train --data /etc/passwd --save /proc/x --steps 1",
        2,
        "weft: data: 1221 tokens make 4 rows of 256; one to train on and a",
    ),
    ("train --data /etc/passwd --dtype f8", 2, "weft: --dtype: f8 not in {f32,bf16}; see --help"),
    (
        "train --data /etc/passwd --clip inf",
        2,
        "weft: --clip is inf, expected a finite number above 0",
    ),
    (
        "train --data /etc/passwd --seed -1",
        2,
        "weft: --seed is -1, expected a whole number from 0 to",
    ),
    (
        "train --data /etc/passwd --no-such-flag",
        2,
        "weft: The following argument was not expected: --no-such-flag; see",
    ),
    ("sample", 2, "weft: --resume is required; see --help"),
    ("sample /no/such", 2, "weft: --prompt is required; see --help"),
    ("sample /etc", 2, "weft: --prompt is required; see --help"),
    ("ckpt", 2, "weft: A subcommand is required; see --help"),
    ("ckpt verify", 2, "weft: PATH is required; see --help"),
    ("ckpt verify /no/such", 2, "weft: ckpt: /no/such is no directory of checkpoints"),
    ("ckpt ls /no/such", 2, "weft: ckpt ls: /no/such is not there"),
    (
        "ckpt diff /no/such /no/other",
        2,
        "weft: safetensors: cannot open /no/such: No such file or directory",
    ),
    (
        "ckpt export /no/such /tmp/x",
        2,
        "weft: safetensors: cannot open /no/such: No such file or directory",
    ),
    (
        "ckpt import /no/such /tmp/x",
        2,
        "weft: safetensors: cannot open /no/such: No such file or directory",
    ),
    ("ckpt reshard /no/such /tmp/x", 2, "weft: --ranks is required; see --help"),
    ("run", 2, "weft: --np is required; see --help"),
    ("run -n 0 -- true", 2, "weft: -n is 0, expected a whole number from 1 to 1024"),
    ("run -n x -- true", 2, "weft: -n is x, expected a whole number from 1 to 1024"),
    (
        "run -n 2 -- /no/such/program",
        127,
        "weft run: cannot start \"/no/such/program\": No such file or directory",
    ),
    ("run -n 2 -- false", 1, "weft run: rank 0 exited with code 1"),
    (
        "estimate --model nosuch",
        2,
        "weft: llama config: \"nosuch\" does not exist, expected tiny, small or",
    ),
    (
        "estimate --model tiny --ranks 0",
        2,
        "weft: The following arguments were not expected: 0 --ranks; see --help",
    ),
    (
        "estimate --model tiny --mesh a=b",
        2,
        "weft: --mesh \"a=b\": \"a=b\" is not an axis; write for example dp=4",
    ),
    (
        "estimate --model tiny --compare zero9",
        2,
        "weft: strategy: name is \"zero9\", expected one of full_shard, zero2,",
    ),
    ("--nosuch", 2, "weft: A subcommand is required; see --help"),
]


@pytest.mark.parametrize("words, code, sentence", CASES)
def test_it_is_one_sentence(words, code, sentence):
    command = [PROGRAM, *words.split()]
    nothing = subprocess.DEVNULL
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=nothing)
    lines = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert (done.returncode, len(lines), done.stdout) == (code, 1, "")
    assert lines[0].startswith(sentence)
