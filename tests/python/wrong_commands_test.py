# SPDX-License-Identifier: Apache-2.0
"""52 wrong commands: each ends with its exit code and one true sentence."""

import os
import subprocess

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
CASES = [
    ("train --data DATA --keep 2", 2, "weft: --keep requires --save; see weft train --help"),
    (
        "train --data DATA --save-non-finite",
        2,
        "weft: --save-non-finite requires --save; see weft train --help",
    ),
    (
        "train --data DATA --lease-seconds 3",
        2,
        "weft: --lease-seconds requires --save; see weft train --help",
    ),
    (
        "train --data DATA --allow-change lr",
        2,
        "weft: --allow-change requires --resume; see weft train --help",
    ),
    ("train --data DATA --prompt a", 2, "weft: --sample is 0, expected at least 1 for --prompt"),
    (
        "train --data DATA --batch 4 --seq 16 --balance-rate 0.1",
        2,
        "weft: --balance-rate: the model (llama) has no biases that balance the load of",
    ),
    (
        "estimate --schedule --json",
        2,
        "weft: --schedule is given with --json, expected one of them",
    ),
    (
        "estimate --schedule --compare ddp",
        2,
        "weft: --schedule is given with --compare, expected one of them",
    ),
    ("", 2, "weft: a command is required; see weft --help"),
    ("trian", 2, "weft: there is no command \"trian\"; see weft --help"),
    ("train", 2, "weft: --data is required; see weft train --help"),
    ("train --data /no/such", 2, "weft: data: cannot open /no/such: No such file or directory"),
    (
        "train --data DATA --steps x",
        2,
        "weft: --steps is x, expected a whole number from 1 to 2147483647",
    ),
    (
        "train --data DATA --steps -1",
        2,
        "weft: --steps is -1, expected a whole number from 1 to 2147483647",
    ),
    ("train --data DATA --lr nan", 2, "weft: --lr is nan, expected a finite number above 0"),
    ("train --data DATA --lr -1", 2, "weft: --lr is -1, expected a finite number above 0"),
    (
        "train --data DATA --ranks 0",
        2,
        "weft: --ranks is 0, expected a whole number from 1 to 1024",
    ),
    (
        "train --data DATA --ranks 100000",
        2,
        "weft: --ranks is 100000, expected a whole number from 1 to 1024",
    ),
    (
        "train --data DATA --mesh dp=3 --ranks 2",
        2,
        "weft: --mesh dp=3 has 3 ranks, expected 2, that of --ranks",
    ),
    (
        "train --data DATA --mesh dp",
        2,
        "weft: --mesh \"dp\": axis is \"dp\", expected a name and a size; write for",
    ),
    (
        "train --data DATA --strategy zero9",
        2,
        "weft: strategy: name is \"zero9\", expected one of full_shard, zero2,",
    ),
    (
        "train --data DATA --model nosuch",
        2,
        "weft: model config: \"nosuch\" does not exist, expected tiny, small or a",
    ),
    (
        "train --data DATA --batch 0",
        2,
        "weft: --batch is 0, expected a whole number from 1 to 2147483647",
    ),
    (
        "train --data DATA --seq 0",
        2,
        "weft: --seq is 0, expected a whole number from 1 to 2147483647",
    ),
    (
        "train --data DATA --resume /no/such --steps 1",
        2,
        "weft: --resume /no/such is missing or a file, expected a directory",
    ),
    (
        "train --data DATA --init /no/such --steps 1",
        2,
        "weft: --init /no/such is missing or a file, expected a directory",
    ),
    (
        "train --data DATA --save /proc/x --steps 1",
        2,
        "weft: data: number of tokens is 1300, expected at least 4353: a row of",
    ),
    (
        "train --data DATA --dtype f8",
        2,
        "weft: --dtype: f8 not in {f32,bf16}; see weft train --help",
    ),
    ("train --data DATA --clip inf", 2, "weft: --clip is inf, expected a finite number above 0"),
    ("train --data DATA --seed -1", 2, "weft: --seed is -1, expected a whole number from 0 to"),
    (
        "train --data DATA --no-such-flag",
        2,
        "weft: there is no flag --no-such-flag; see weft train --help",
    ),
    ("sample", 2, "weft: DIR or --resume is required; see weft sample --help"),
    ("sample /no/such", 2, "weft: sample: /no/such is missing or a file, expected a directory"),
    ("sample /etc", 2, "weft: sample: --prompt is missing, expected it or --prompts"),
    ("ckpt", 2, "weft: a command is required; see weft ckpt --help"),
    ("ckpt verify", 2, "weft: PATH is required; see weft ckpt verify --help"),
    (
        "ckpt verify /no/such",
        2,
        "weft: ckpt: /no/such is missing or a file, expected a directory of",
    ),
    ("ckpt ls /no/such", 2, "weft: ckpt ls: /no/such does not exist"),
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
    ("ckpt reshard /no/such /tmp/x", 2, "weft: --ranks is required; see weft ckpt reshard --help"),
    ("run", 2, "weft: --np is required; see weft run --help"),
    ("run -n 0 -- true", 2, "weft: -n is 0, expected a whole number from 1 to 1024"),
    ("run -n x -- true", 2, "weft: -n is x, expected a whole number from 1 to 1024"),
    (
        "run -n 2 -- /no/such/program",
        127,
        "weft run: launch: cannot start \"/no/such/program\": No such file or",
    ),
    ("run -n 1 -- false", 1, "weft run: rank 0 exited with code 1 after 0.0 s"),
    (
        "estimate --model nosuch",
        2,
        "weft: model config: \"nosuch\" does not exist, expected tiny, small or a",
    ),
    (
        "estimate --model tiny --ranks 0",
        2,
        "weft: there is no flag --ranks; see weft estimate --help",
    ),
    (
        "estimate --model tiny --mesh a=b",
        2,
        "weft: --mesh \"a=b\": axis is \"a=b\", expected a name and a size; write for",
    ),
    (
        "estimate --model tiny --compare zero9",
        2,
        "weft: strategy: name is \"zero9\", expected one of full_shard, zero2,",
    ),
    ("ckpt verify a b", 2, "weft: argument \"b\" is one too many; see weft ckpt verify --help"),
    ("--nosuch", 2, "weft: there is no flag --nosuch; see weft --help"),
]


@pytest.mark.parametrize("words, code, sentence", CASES)
def test_it_is_one_sentence(words, code, sentence, tmp_path):
    text = tmp_path / "text"
    text.write_text("a" * 1300)
    command = [PROGRAM, *words.replace("DATA", str(text)).split()]
    nothing = subprocess.DEVNULL
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=nothing)
    lines = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert (done.returncode, len(lines), done.stdout) == (code, 1, "")
    assert lines[0].startswith(sentence)
