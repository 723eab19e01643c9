# SPDX-License-Identifier: Apache-2.0
"""Compares weft's tokenizers with the packages tokenizers and sentencepiece on mixed text: ids,
texts, and speed on one core in interleaved rounds.

    python tests/python/compare_tokenizers.py [--bytes N] [--rounds N] [DIRECTORY ...]

A DIRECTORY has a tokenizer.json or a tokenizer.model; the default are those of
tests/reference/tokenizers and what `--train SIZE` trains with that many tokens. The text is source
code of Python's library, interleaved with words of many scripts, emoji, numbers and runs of white
space. Exits with 1 when an id or a text differs, or weft is slower.
"""

import argparse
import importlib.util
import os
import pathlib
import statistics
import sys
import sysconfig
import tempfile
import time

# One thread for the packages, and room for the thread-local memory of two OpenMP libraries; the
# loader reads the latter when the process begins.
SETTINGS = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1",
            "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}
if not SETTINGS.items() <= os.environ.items():
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | SETTINGS)
import weft  # noqa: E402

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference"


def load_script():
    spec = importlib.util.spec_from_file_location("made", REFERENCE / "make_tokenizers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without(text, tokens):
    for token in tokens:
        text = text.replace(token, "")
    return text


def differing(tokenizer, package, texts):
    """The number of texts that have other ids, or ids that decode to another text."""
    count = 0
    for text in texts:
        ids = package.encode(text)
        stream = weft.TextStream(tokenizer)
        equal = (tokenizer.encode(text) == ids
                 and tokenizer.decode(ids) == package.decode(ids, True)
                 and tokenizer.decode(ids, skip_special=False) == package.decode(ids, False)
                 and "".join(map(stream.push, ids)) + stream.finish() == package.decode(ids, True))
        count += not equal
    return count


def seconds(encode, texts):
    began = time.perf_counter()
    for text in texts:
        encode(text)
    return time.perf_counter() - began


def rates(tokenizer, package, texts, rounds):
    """The medians of weft's and the package's MB/s, and of their quotient by round."""
    size = sum(len(text.encode()) for text in texts) / 1e6
    pairs = [(size / seconds(tokenizer.encode, texts), size / seconds(package.fast, texts))
             for _ in range(rounds)]
    return (statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs),
            statistics.median(p[0] / p[1] for p in pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--train", type=int, default=0, metavar="SIZE",
                        help="train a tokenizer of each kind with so many tokens, too")
    parser.add_argument("--trained", type=pathlib.Path, metavar="DIR",
                        help="keep those there; kinds that it has are not trained again")
    parser.add_argument("directories", nargs="*", type=pathlib.Path)
    given = parser.parse_args()
    made = load_script()
    directories = given.directories or sorted(
        p for p in (REFERENCE / "tokenizers").iterdir() if p.is_dir())
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = made.corpus(given.bytes, given.seed, files)
    fails = False
    with tempfile.TemporaryDirectory() as scratch:
        if given.train:
            training = made.corpus(given.bytes, given.seed + 1, files)
            kept = given.trained or pathlib.Path(scratch)
            kept.mkdir(parents=True, exist_ok=True)
            directories += made.train_large(training, given.train, kept)
        print(f"{'tokenizer':28} {'texts':>6} {'differ':>6} {'weft MB/s':>10} {'package':>8} ratio")
        for directory in directories:
            tokenizer = weft.Tokenizer.from_directory(str(directory))
            package = made.Package(directory)
            # weft finds control tokens in text, SentencePiece does not.
            own = [without(text, [] if package.is_json else package.control) for text in texts]
            wrong = differing(tokenizer, package, own)
            mine, other, ratio = rates(tokenizer, package, own, given.rounds)
            fails |= wrong > 0 or ratio < 1
            print(f"{directory.name:28} {len(own):6} {wrong:6} {mine:10.1f} {other:8.1f} "
                  f"{ratio:.2f}", flush=True)
    return 1 if fails else 0


if __name__ == "__main__":
    sys.exit(main())
