# SPDX-License-Identifier: Apache-2.0
"""Wrong models, tokenizers and prompts: each ends with exit code 2 and one true sentence."""

import json
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference"
VOCABULARY = {**{chr(33 + i): i for i in range(80)}, "\u0120": 77, "ab": 80, "abc": 81}


def tokenizer_json(**changes):
    made = {"model": {"type": "BPE", "vocab": VOCABULARY, "merges": ["a b", "ab c"]},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "decoder": {"type": "ByteLevel"}}
    return json.dumps({**made, **changes})


def model_in(directory):
    """A Llama of 89 tokens with a tokenizer."""
    directory.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(REFERENCE / "grouped_tied" / name, directory)
    (directory / "tokenizer.json").write_text(tokenizer_json())


def change_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_header(directory, change):
    """Rewrites the header of the weights; the tensors stay where they are."""
    path = directory / "model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])


def first_tensor(header):
    return header[next(name for name in sorted(header) if name != "__metadata__")]


def set_dtype(header):
    first_tensor(header)["dtype"] = "F128"


def drop_norm(header):
    del header["model.norm.weight"]


def set_shape(header):
    tensor = header["model.norm.weight"]
    tensor["shape"] = [1, *tensor["shape"]]


def shorten(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def replace_weights(directory, name, content):
    (directory / "model.safetensors").unlink()
    (directory / name).write_bytes(content)


def write(directory, name, text):
    (directory / name).write_text(text)


UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1]]}
INDEX = json.dumps({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})
SAMPLE = "sample MODEL --prompt abc"
# What is changed, the command, and the start of the sentence after "weft: ".
CASES = {
    "unknown family": (lambda d: change_config(d, model_type="t5"), SAMPLE, ""),
    "unknown key": (lambda d: change_config(d, attention_is_new=True), SAMPLE, ""),
    "no family": (lambda d: change_config(d, model_type=5), SAMPLE, ""),
    "broken config": (lambda d: write(d, "config.json", "{\"model_type\":"), SAMPLE, ""),
    "no config": (lambda d: (d / "config.json").unlink(), SAMPLE, ""),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), SAMPLE, ""),
    "pickled weights": (lambda d: replace_weights(d, "pytorch_model.bin", b"PK"), SAMPLE, ""),
    "truncated weights": (shorten, SAMPLE, ""),
    "empty weights": (lambda d: replace_weights(d, "model.safetensors", b""), SAMPLE, ""),
    "unknown dtype": (lambda d: change_header(d, set_dtype), SAMPLE, ""),
    "missing tensor": (lambda d: change_header(d, drop_norm), SAMPLE, ""),
    "wrong shape": (lambda d: change_header(d, set_shape), SAMPLE, ""),
    "missing shard": (
        lambda d: replace_weights(d, "model.safetensors.index.json", INDEX.encode()), SAMPLE, ""),
    "missing tokenizer": (lambda d: (d / "tokenizer.json").unlink(), SAMPLE + " --chat", ""),
    "broken tokenizer": (lambda d: write(d, "tokenizer.json", "{"), SAMPLE, ""),
    "unknown tokenizer": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(model={"type": "WordLevel"},
                                                            pre_tokenizer=None)), SAMPLE, ""),
    "unknown normalizer": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(normalizer={"type": "Nmt"})), SAMPLE,
        ""),
    "damaged table of replacements": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})), SAMPLE, ""),
    "no base64": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "?"})), SAMPLE, ""),
    "unigram without an unknown token": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            model={**UNIGRAM, "unk_id": None}, pre_tokenizer=None)), SAMPLE, ""),
    "unigram with an unknown id": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            model={**UNIGRAM, "unk_id": 2}, pre_tokenizer=None)), SAMPLE, ""),
    "unigram without a score": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            model={**UNIGRAM, "vocab": [["<unk>", 0], ["a"]]}, pre_tokenizer=None)), SAMPLE, ""),
    "empty tokenizer.model": (
        lambda d: ((d / "tokenizer.json").unlink(), write(d, "tokenizer.model", "")), SAMPLE, ""),
    "id beyond the vocabulary": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            added_tokens=[{"id": 300, "content": "<x>", "special": True}])),
        "sample MODEL --prompt a<x>", ""),
    "unknown template": (None, SAMPLE + " --chat --chat-template klingon", ""),
    "no template": (None, SAMPLE + " --chat", ""),
    "refused system message": (
        None, SAMPLE + " --chat --chat-template gemma --system brief", ""),
    "temperature": (None, SAMPLE + " --temperature -1", ""),
    "temperature that is no number": (None, SAMPLE + " --temperature warm", ""),
    "top-p": (None, SAMPLE + " --top-p 1.5", ""),
    "batch": (None, SAMPLE + " --batch 0", ""),
    "tokens": (None, SAMPLE + " --tokens 0", ""),
    "ranks": (None, SAMPLE + " --ranks 3", ""),
    "device": (None, SAMPLE + " --device tpu", ""),
    "long prompt": (None, "sample MODEL --prompt LONG", ""),
    "empty prompt": (None, ["sample", "MODEL", "--prompt", ""], ""),
    "empty stop text": (None, ["sample", "MODEL", "--prompt", "abc", "--stop", ""], ""),
    "no prompt": (None, "sample MODEL", ""),
    "missing prompts": (None, "sample MODEL --prompts MODEL/absent", ""),
    "prompts in a directory": (None, "sample MODEL --prompts MODEL", ""),
    "no lines": (lambda d: write(d, "lines", ""), "sample MODEL --prompts MODEL/lines", ""),
    "empty line": (lambda d: write(d, "lines", "ab\n\nab"), "sample MODEL --prompts MODEL/lines",
                   ""),
    "token file with ids beyond the tokenizer": (
        lambda d: (d / "t.bin").write_bytes(struct.pack("<256i2H", 20240520, 1, 2, *[0] * 253, 5,
                                                        900)),
        "tokenize MODEL --decode --data MODEL/t.bin", ""),
    "truncated token file": (
        lambda d: (d / "t.bin").write_bytes(struct.pack("<256i1H", 20240520, 1, 2, *[0] * 253, 5)),
        "tokenize MODEL --decode --data MODEL/t.bin", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_one_sentence(case, tmp_path):
    change, words, sentence = CASES[case]
    model = tmp_path / "model"
    model_in(model)
    if change:
        change(model)
    words = words.split() if isinstance(words, str) else words
    fill = lambda word: word.replace("MODEL", str(model)).replace("LONG", "b" * 3000)
    done = subprocess.run([PROGRAM, *map(fill, words)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    text = done.stderr.replace(str(model), "MODEL")
    lines = [line for line in text.splitlines() if "warning" not in line]
    assert (done.returncode, len(lines), done.stdout) == (2, 1, ""), text
    assert lines[0].startswith("weft: " + sentence), text
