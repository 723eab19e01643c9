# SPDX-License-Identifier: Apache-2.0
"""Rows of text from Python: equal to those of tokenizers and transformers."""

import json
import pathlib

import numpy as np
import pytest

import weft

FILES = pathlib.Path(__file__).parent.parent / "reference/datasets"
EXPECTED = json.loads((FILES / "expected.json").read_text())
TOKENIZER = weft.Tokenizer.from_directory(str(FILES))


def rows(path, **options):
    return weft.text_dataset(str(FILES / path), sequence=32, tokenizer=TOKENIZER, **options)


@pytest.mark.parametrize("path, name, options", [
    ("text", "joined", {"seed": 5}),
    ("chat.jsonl", "padded", {"seed": 6}),
    ("chat.jsonl", "packed chat", {"seed": 7, "pack": True}),
    ("lines.jsonl", "packed lines", {"seed": 7, "pack": True})])
def test_rows_equal_those_of_transformers(path, name, options):
    data = rows(path, **options)
    expected = EXPECTED["rows"][name]
    arrays = data.read(0, len(expected))
    assert len(arrays) == (3 if data.has_segments else 2)
    for array, values in zip(arrays, zip(*expected)):
        assert array.dtype == np.int64
        np.testing.assert_array_equal(array, values)
    # Reading begins at any row.
    for array, values in zip(data.read(len(expected) - 2, 2), zip(*expected[-2:])):
        np.testing.assert_array_equal(array, values)


def test_mixture_and_held_out_rows(tmp_path):
    paths = [str(FILES / name) for name in ("text", "lines.jsonl", "chat.jsonl")]
    options = {"sequence": 32, "tokenizer": TOKENIZER, "seed": 8, "weights": [5, 3, 2]}
    data = weft.text_dataset(paths, cache=str(tmp_path / "cache"), **options)
    targets = [row[1] for row in EXPECTED["rows"]["mixed"][:60]]
    np.testing.assert_array_equal(data.read(0, 60)[1], targets)
    assert len(list((tmp_path / "cache").glob("*/tokens-00000.idx"))) == 3
    train, held_out = weft.split_text_dataset(paths, 2, **options)
    assert len(train) + len(held_out) == len(data) and 3 <= len(held_out) <= 6
    assert train.description().startswith(f"{train.tokens} tokens in 4 files")
    assert train.sequence == 32


def test_long_documents_are_split_truncated_or_dropped():
    counts = [len(rows("chat.jsonl", long_documents=long))
              for long in ("split", "truncate", "drop")]
    assert counts[0] > counts[1] > counts[2] >= 1
    with pytest.raises(ValueError, match="text_dataset: long_documents is .*, expected split"):
        rows("lines.jsonl", long_documents="cut")


def test_bytes_are_tokens_of_a_model_of_bytes():
    text = (FILES / "text/a.txt").read_bytes()
    ids, targets = weft.text_dataset(str(FILES / "text/a.txt"), sequence=8).read(0)
    at = text.find(bytes(ids[0].tolist()))
    assert at % 8 == 0 and bytes(targets[0].tolist()) == text[at + 1:at + 9]


def test_errors():
    with pytest.raises(ValueError, match="600 ids, no tokenizer, expected one"):
        weft.text_dataset(str(FILES / "text"), sequence=8, vocabulary=600)
    with pytest.raises(ValueError, match="text_dataset: loss is .*, expected automatic"):
        rows("text", loss="some")
    with pytest.raises(ValueError, match="read: count must be at least 0, got -1"):
        rows("text").read(0, -1)
    with pytest.raises(ValueError, match="line 1: the field \"body\" is missing"):
        len(rows("lines.jsonl", field="body"))
