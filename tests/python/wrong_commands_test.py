# SPDX-License-Identifier: Apache-2.0
"""53 wrong commands: each ends with its exit code and one true sentence."""

import os
import subprocess

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
# The sentence after "weft: ", or its beginning, by the words of the command.
SENTENCES = {
    "train --data DATA --keep 2": "--keep requires --save; see weft train --help",
    "train --data DATA --save-non-finite":
        "--save-non-finite requires --save; see weft train --help",
    "train --data DATA --lease-seconds 3": "--lease-seconds requires --save; see weft train --help",
    "train --data DATA --allow-change lr":
        "--allow-change requires --resume; see weft train --help",
    "train --data DATA --prompt a": "--sample is 0, expected at least 1 for --prompt",
    "train --data DATA --batch 4 --seq 16 --balance-rate 0.1":
        "--balance-rate: the model (llama) has no biases that balance the load of",
    "estimate --schedule --json": "--schedule is given with --json, expected one of them",
    "estimate --schedule --compare ddp": "--schedule is given with --compare, expected one of them",
    "": "a command is required; see weft --help",
    "trian": 'there is no command "trian"; see weft --help',
    "train": "--data is required; see weft train --help",
    "train --data /no/such": "data: cannot open /no/such: No such file or directory",
    "train --data DATA --steps x": "--steps is x, expected a whole number from 1 to 2147483647",
    "train --data DATA --steps -1": "--steps is -1, expected a whole number from 1 to 2147483647",
    "train --data DATA --lr nan": "--lr is nan, expected a finite number above 0",
    "train --data DATA --lr -1": "--lr is -1, expected a finite number above 0",
    "train --data DATA --ranks 0": "--ranks is 0, expected a whole number from 1 to 1024",
    "train --data DATA --ranks 100000": "--ranks is 100000, expected a whole number from 1 to 1024",
    "train --data DATA --mesh dp=3 --ranks 2":
        "--mesh dp=3 has 3 ranks, expected 2, that of --ranks",
    "train --data DATA --mesh dp":
        '--mesh "dp": axis is "dp", expected a name and a size; write for',
    "train --data DATA --strategy zero9":
        'strategy: name is "zero9", expected one of full_shard, zero2,',
    "train --data DATA --model nosuch":
        'model config: "nosuch" does not exist, expected tiny, small or a',
    "train --data DATA --batch 0": "--batch is 0, expected a whole number from 1 to 2147483647",
    "train --data DATA --seq 0": "--seq is 0, expected a whole number from 1 to 2147483647",
    "train --data DATA --resume /no/such --steps 1":
        "--resume /no/such is missing or a file, expected a directory",
    "train --data DATA --init /no/such --steps 1":
        "--init /no/such is missing or a file, expected a directory",
    "train --data DATA --seq 1300 --steps 1":
        "data: number of tokens is 1300, expected at least 2601: a row of",
    "train --data DATA --dtype f8": "--dtype: f8 not in {f32,bf16,f16}; see weft train --help",
    "train --data DATA --clip inf": "--clip is inf, expected a finite number above 0",
    "train --data DATA --seed -1": "--seed is -1, expected a whole number from 0 to",
    "train --data DATA --no-such-flag": "there is no flag --no-such-flag; see weft train --help",
    "sample": "DIR or --resume is required; see weft sample --help",
    "sample /no/such": "sample: /no/such is missing or a file, expected a directory",
    "sample /etc": "sample: --prompt is missing, expected it or --prompts",
    "ckpt": "a command is required; see weft ckpt --help",
    "ckpt verify": "PATH is required; see weft ckpt verify --help",
    "ckpt verify /no/such": "ckpt: /no/such is missing or a file, expected a directory of",
    "ckpt ls /no/such": "ckpt ls: /no/such does not exist",
    "ckpt diff /no/such /no/other": "safetensors: cannot open /no/such: No such file or directory",
    "ckpt export /no/such /tmp/x": "safetensors: cannot open /no/such: No such file or directory",
    "ckpt import /no/such /tmp/x": "safetensors: cannot open /no/such: No such file or directory",
    "ckpt reshard /no/such /tmp/x": "--ranks is required; see weft ckpt reshard --help",
    "run": "--np is required; see weft run --help",
    "run -n 0 -- true": "-n is 0, expected a whole number from 1 to 1024",
    "run -n x -- true": "-n is x, expected a whole number from 1 to 1024",
    "estimate --model nosuch": 'model config: "nosuch" does not exist, expected tiny, small or a',
    "estimate --model tiny --ranks 0": "there is no flag --ranks; nearest: "
        "--rank, --ranks-per-host; see weft estimate --help",
    "estimate --model tiny --mesh a=b":
        '--mesh "a=b": axis is "a=b", expected a name and a size; write for',
    "estimate --model tiny --compare zero9":
        'strategy: name is "zero9", expected one of full_shard, zero2,',
    "ckpt verify a b": 'argument "b" is one too many; see weft ckpt verify --help',
    "--nosuch": "there is no flag --nosuch; see weft --help",
}
CASES = [(words, 2, f"weft: {sentence}") for words, sentence in SENTENCES.items()]
CASES += [
    ("run -n 1 -- false", 1, "weft run: rank 0 exited with code 1 after 0.0 s"),
    (
        "run -n 2 -- /no/such/program",
        127,
        'weft run: launch: cannot start "/no/such/program": No such file or',
    ),
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
