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
# The change, the command, and the start of the sentence after "weft: ".
CASES = {
    "unknown family": (lambda d: change_config(d, model_type="t5"), SAMPLE,
        'model config: MODEL/config.json: "model_type" is "t5", expected one of '),
    "unknown key": (lambda d: change_config(d, attention_is_new=True), SAMPLE,
        'model config: MODEL/config.json: the key "attention_is_new" is not understood, '
        "expected none that may change results"),
    "no family": (lambda d: change_config(d, model_type=5), SAMPLE,
        'model config: MODEL/config.json: "model_type" is number, not a string'),
    "broken config": (lambda d: write(d, "config.json", "{\"model_type\":"), SAMPLE,
        "tokenizer: MODEL/config.json: not valid JSON: parse error at line 1, column "
        "15"),
    "no config": (lambda d: (d / "config.json").unlink(), SAMPLE,
        "sample: MODEL has no complete checkpoint, expected at least one"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), SAMPLE,
        "safetensors: MODEL holds no model, expected model.safetensors or "
        "model.safetensors.index.json"),
    "pickled weights": (lambda d: replace_weights(d, "pytorch_model.bin", b"PK"), SAMPLE,
        "safetensors: MODEL/pytorch_model.bin is a file of PyTorch, expected "
        ".safetensors; convert"),
    "truncated weights": (shorten, SAMPLE,
        'safetensors: MODEL/model.safetensors: tensor "model.norm.weight" ends at byte '
        "68864 of the"),
    "empty weights": (lambda d: replace_weights(d, "model.safetensors", b""), SAMPLE,
        "safetensors: MODEL/model.safetensors has 0 bytes, expected a header of at least "
        "8"),
    "unknown dtype": (lambda d: change_header(d, set_dtype), SAMPLE,
        'safetensors: MODEL/model.safetensors: tensor "model.embed_tokens.weight" has the '
        'dtype "F128"'),
    "missing tensor": (lambda d: change_header(d, drop_norm), SAMPLE,
        "safetensors: MODEL/model.safetensors: the tensors end at byte 68736 of the data, "
        "but the file has 68864 bytes of data"),
    "wrong shape": (lambda d: change_header(d, set_shape), SAMPLE,
        'load_hugging_face: MODEL: tensor "model.norm.weight" is [1, 32] but the '
        "parameter [32]"),
    "missing shard": (
        lambda d: replace_weights(d, "model.safetensors.index.json", INDEX.encode()), SAMPLE,
        "safetensors: cannot open MODEL/model-00001-of-00001.safetensors: No such file or "
        "directory"),
    "missing tokenizer": (lambda d: (d / "tokenizer.json").unlink(), SAMPLE + " --chat",
        "sample: MODEL has no tokenizer, expected one for --chat; name it by --tokenizer"),
    "broken tokenizer": (lambda d: write(d, "tokenizer.json", "{"), SAMPLE,
        "tokenizer: MODEL/tokenizer.json: not valid JSON: parse error at line 1, column 2"),
    "unknown tokenizer": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(model={"type": "WordLevel"},
                                                            pre_tokenizer=None)), SAMPLE,
        'tokenizer: MODEL/tokenizer.json: model.type is "WordLevel", expected BPE, '
        "WordPiece or Unigram"),
    "unknown normalizer": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(normalizer={"type": "Else"})), SAMPLE,
        'tokenizer: MODEL/tokenizer.json: normalizer.type is "Else", expected one that '
        "weft reads"),
    "damaged table of replacements": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"})), SAMPLE,
        "tokenizer: MODEL/tokenizer.json: normalizer.precompiled_charsmap: the table of "
        "replacements has 3 bytes, expected as many as it says"),
    "no base64": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "?"})), SAMPLE,
        'tokenizer: MODEL/tokenizer.json: normalizer.precompiled_charsmap is "?", '
        "expected a table of SentencePiece in base64"),
    "unigram without an unknown token": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            model={**UNIGRAM, "unk_id": None}, pre_tokenizer=None)), SAMPLE,
        "tokenizer: MODEL/tokenizer.json: model.unk_id is missing, expected a value"),
    "unigram with an unknown id": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            model={**UNIGRAM, "unk_id": 2}, pre_tokenizer=None)), SAMPLE,
        "tokenizer: MODEL/tokenizer.json: model.unk_id is 2, expected an id of the "
        "vocabulary"),
    "unigram without a score": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            model={**UNIGRAM, "vocab": [["<unk>", 0], ["a"]]}, pre_tokenizer=None)), SAMPLE,
        "tokenizer: MODEL/tokenizer.json: model.vocab[1] is an array, expected a piece "
        "and its score"),
    "empty tokenizer.model": (
        lambda d: ((d / "tokenizer.json").unlink(), write(d, "tokenizer.model", "")), SAMPLE,
        "tokenizer: MODEL/tokenizer.model has 0 bytes, expected 1 to 67108864"),
    "id beyond the vocabulary": (
        lambda d: write(d, "tokenizer.json", tokenizer_json(
            added_tokens=[{"id": 300, "content": "<x>", "special": True}])),
        "sample MODEL --prompt a<x>",
        "--prompt: token 300 is beyond the vocabulary, expected 0 to 82"),
    "long prompt": (None, "sample MODEL --prompt LONG",
        "--prompt has 3000 tokens, expected at most 64, those that the model takes"),
    "empty prompt": (None, ["sample", "MODEL", "--prompt", ""],
        "--prompt is empty, expected at least one byte"),
    "empty stop text": (None, ["sample", "MODEL", "--prompt", "abc", "--stop", ""],
        "--stop is empty, expected at least one byte"),
    "no prompt": (None, "sample MODEL",
        "sample: --prompt is missing, expected it or --prompts"),
    "missing prompts": (None, "sample MODEL --prompts MODEL/absent",
        "--prompts: cannot open MODEL/absent: No such file or directory"),
    "prompts in a directory": (None, "sample MODEL --prompts MODEL",
        "--prompts: MODEL is a directory, expected a file"),
    "no lines": (lambda d: write(d, "lines", ""), "sample MODEL --prompts MODEL/lines",
        "--prompts: MODEL/lines has 0 lines, expected at least 1"),
    "empty line": (lambda d: write(d, "lines", "ab\n\nab"), "sample MODEL --prompts MODEL/lines",
        "--prompts: line 2 of MODEL/lines is empty, expected at least one byte"),
    "token file with ids beyond the tokenizer": (
        lambda d: (d / "t.bin").write_bytes(struct.pack("<256i2H", 20240520, 1, 2, *[0] * 253, 5,
                                                        900)),
        "tokenize MODEL --decode --data MODEL/t.bin",
        "data: MODEL/t.bin: token 1 is 900, but the model's vocabulary has 82 ids"),
    "truncated token file": (
        lambda d: (d / "t.bin").write_bytes(struct.pack("<256i1H", 20240520, 1, 2, *[0] * 253, 5)),
        "tokenize MODEL --decode --data MODEL/t.bin",
        "data: MODEL/t.bin has 2 bytes after its header, expected 2 tokens of 2 bytes"),
}
# Flags of SAMPLE, and the sentences.
FLAGS = {
    "--chat --chat-template klingon":
        'chat: the template is "klingon", expected one of llama2, llama3, llama3.1,',
    "--chat":
        "sample: MODEL has no chat template, expected one; name it by --chat-template",
    "--chat --chat-template gemma --system brief":
        "chat: the template refuses the messages: System role not supported",
    "--temperature -1": "--temperature is -1, expected a finite number of at least 0",
    "--temperature warm": "--temperature is warm, expected a finite number of at least 0",
    "--top-p 1.5": "--top-p is 1.5, expected a finite number above 0 and at most 1",
    "--batch 0": "--batch is 0, expected a whole number from 1 to 2147483647",
    "--tokens 0": "--tokens is 0, expected a whole number from 1 to 2147483647",
    "--device tpu": 'device: name is "tpu", expected cpu, meta, cuda or cuda:<index>',
}
CASES |= {flags: (None, f"{SAMPLE} {flags}", sentence) for flags, sentence in FLAGS.items()}


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
