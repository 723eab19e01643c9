# SPDX-License-Identifier: Apache-2.0
"""Every form of normalizer, pre-tokenizer, decoder, post-processor and BPE that the package
tokenizers knows has its ids and texts, or is refused by its name. Needs the package.

    python tests/python/tokenizer_forms_test.py

lists the forms with what becomes of each."""

import copy
import json
import pathlib
import random
import sys

import pytest
import weft

tokenizers = pytest.importorskip("tokenizers")

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))
import make_tokenizers as made  # noqa: E402

STRING, REGEX = {"String": "a"}, {"Regex": r"\s+|[a-c]+"}
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def step(type_, **settings):
    return dict(type=type_, **settings)


def pre(*steps):
    return step("Sequence", pretokenizers=list(steps))


def dec(*steps):
    return step("Sequence", decoders=list(steps))


def norm(*steps):
    return step("Sequence", normalizers=list(steps))


def byte_level(prefix=False, regex=True):
    return step("ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


SPACE = dict(replacement="\u2581")
BACK = step("Replace", pattern={"String": "\u2581"}, content=" ")
DIGITS = [step("Digits", individual_digits=i) for i in (True, False)]
PUNCTUATION = [step("Punctuation", behavior=b) for b in BEHAVIORS]
METASPACE = ([step("Metaspace", **SPACE, prepend_scheme=p, split=s)
              for p in ("always", "first", "never") for s in (True, False)]
             + [step("Metaspace", **SPACE), step("Metaspace", **SPACE, add_prefix_space=True),
                step("Metaspace", **SPACE, add_prefix_space=False),
                step("Metaspace", **SPACE, add_prefix_space=False, prepend_scheme="never"),
                step("Metaspace", **SPACE, add_prefix_space=False, prepend_scheme="always"),
                step("Metaspace", **SPACE, add_prefix_space=True, prepend_scheme="never"),
                step("Metaspace", replacement="\u2581\u2581"), step("Metaspace", replacement="_"),
                step("Metaspace", replacement="")])
SPLITS = [step("Split", pattern=p, behavior=b, invert=i)
          for p in (STRING, REGEX) for b in BEHAVIORS for i in (True, False)]
LEVELS = [byte_level(p, r) for p in (True, False) for r in (True, False)]
PLAIN = [step("Whitespace"), step("WhitespaceSplit"), step("BertPreTokenizer"),
         step("UnicodeScripts"), step("CharDelimiterSplit", delimiter="a"),
         step("CharDelimiterSplit", delimiter=" "), step("CharDelimiterSplit", delimiter="ab"),
         step("FixedLength", length=5), step("FixedLength", length=1), step("FixedLength"),
         step("Punctuation"), step("Digits"), step("Nothing")]
FALCON = pre(step("Punctuation", behavior="Contiguous"), byte_level(), DIGITS[1],
             step("Split", pattern={"Regex": "[0-9][0-9][0-9]"}, behavior="Isolated",
                  invert=False))
PRE_TOKENIZERS = (
    LEVELS + METASPACE + SPLITS + PUNCTUATION + DIGITS + PLAIN
    + [FALCON, pre(), pre(byte_level(), byte_level()), pre(byte_level(), step("Whitespace")),
       pre(DIGITS[0], step("Metaspace", **SPACE)), pre(pre(byte_level(True)), DIGITS[0]),
       pre(step("WhitespaceSplit"), step("Metaspace", **SPACE, prepend_scheme="first")),
       pre(byte_level(), step("FixedLength", length=3)), pre(step("Metaspace", **SPACE), LEVELS[2]),
       pre(step("Split", pattern=REGEX, behavior="Removed", invert=True), byte_level())])
STRIPS = [step("Strip", content=c, start=a, stop=b)
          for c, a, b in ((" ", 1, 0), (" ", 0, 1), ("a", 2, 1), (" ", 0, 0), ("ab", 1, 0))]
FUSE, FALLBACK = step("Fuse"), step("ByteFallback")
DECODERS = (
    [byte_level(), FUSE, FALLBACK, BACK, step("Replace", pattern=REGEX, content="-"),
     step("Replace", pattern=STRING, content=""), step("WordPiece", prefix="##", cleanup=True),
     step("WordPiece", prefix="##", cleanup=False), step("WordPiece", prefix="a", cleanup=True),
     step("BPEDecoder", suffix="</w>"), step("BPEDecoder", suffix="a"), step("BPEDecoder"),
     step("BPEDecoder", suffix=""),
     step("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=True),
     step("CTC", pad_token="a", word_delimiter_token="b", cleanup=False), step("Nothing")]
    + METASPACE + STRIPS
    + [dec(), dec(BACK, FALLBACK, FUSE), dec(BACK, FALLBACK), dec(FALLBACK, BACK),
       dec(FALLBACK, step("Metaspace", **SPACE)), dec(FALLBACK, FUSE, BACK), dec(FUSE, BACK),
       dec(byte_level(), FUSE), dec(byte_level(), FUSE, STRIPS[0]), dec(FALLBACK, FUSE,
       step("Metaspace", **SPACE)),
       dec(FALLBACK, STRIPS[0]), dec(BACK, STRIPS[0]), dec(STRIPS[0], BACK),
       dec(step("BPEDecoder", suffix="</w>"), BACK), dec(BACK, step("BPEDecoder", suffix="a")),
       dec(BACK, byte_level()), dec(byte_level(), BACK), dec(FUSE, FUSE),
       dec(FALLBACK, FALLBACK), dec(step("BPEDecoder", suffix="a"), FUSE, STRIPS[0]),
       dec(step("BPEDecoder", suffix="a"), step("WordPiece", prefix="##", cleanup=True)),
       dec(FALLBACK, step("BPEDecoder", suffix="a")), dec(step("BPEDecoder", suffix="a"), FALLBACK),
       dec(step("BPEDecoder", suffix="a"), FUSE, STRIPS[1]), dec(STRIPS[0], STRIPS[0]),
       dec(FALLBACK, FUSE, STRIPS[0], STRIPS[0]),
       dec(step("WordPiece", prefix="##", cleanup=False), FALLBACK),
       dec(step("Replace", pattern={"String": "<0x4"}, content="<0x5"), FALLBACK, FUSE),
       dec(FALLBACK, step("Replace", pattern={"String": "ab"}, content="c")),
       dec(FALLBACK, step("Metaspace", **SPACE, prepend_scheme="never"), FUSE),
       dec(step("Metaspace", **SPACE), step("BPEDecoder", suffix="a"))]
    + [dec(BACK, FALLBACK, FUSE, strip) for strip in STRIPS])
NORMALIZERS = (
    [step(t) for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                       "ByteLevel", "Nothing")]
    + [step("Strip", strip_left=a, strip_right=b) for a in (True, False) for b in (True, False)]
    + [step("Prepend", prepend="\u2581"), step("Prepend", prepend=""),
       step("Replace", pattern=REGEX, content="b"), step("Replace", pattern=STRING, content=""),
       norm(), norm(step("NFC"), step("Replace", pattern={"Regex": r"\s+"}, content=" "),
                    step("Lowercase")),
       norm(step("ByteLevel"), step("Lowercase")),
       norm(step("Strip", strip_left=True, strip_right=False), step("Prepend", prepend="b")),
       step("Replace", pattern=STRING, content="bc"),
       step("Replace", pattern={"String": "ab"}, content="bc")]
    + [step("BertNormalizer", clean_text=a, handle_chinese_chars=b, strip_accents=c, lowercase=d)
       for a in (True, False) for b in (True, False) for c in (None, True, False)
       for d in (True, False)])


def template(*pieces):
    of = {"A": {"Sequence": {"id": "A", "type_id": 0}},
          "B": {"Sequence": {"id": "B", "type_id": 0}},
          "<s>": {"SpecialToken": {"id": "<s>", "type_id": 0}}}
    return step("TemplateProcessing", single=[of[p] for p in pieces],
                pair=[of[p] for p in ("A", "B")],
                special_tokens={"<s>": {"id": "<s>", "ids": [1, 2], "tokens": ["<s>", "</s>"]}})


ROBERTA = step("RobertaProcessing", sep=["</s>", 2], cls=["<s>", 1], trim_offsets=True,
               add_prefix_space=False)
POST_PROCESSORS = [
    ROBERTA, step("BertProcessing", sep=["</s>", 2], cls=["<s>", 1]), byte_level(),
    template("A"), template("<s>", "A"), template("<s>", "A", "<s>", "<s>"), template("<s>"),
    template("A", "A"), template("A", "<s>", "A"), template("B"), template(), step("Nothing"),
    step("Sequence", processors=[byte_level(), template("<s>", "A")]),
    step("Sequence", processors=[template("<s>", "A"), ROBERTA]), step("Sequence", processors=[])]
MODELS = [dict(zip(("end_of_word_suffix", "continuing_subword_prefix"), affixes), **flags)
          for affixes in ((None, None), ("", ""), ("</w>", None), (None, "##"), ("</w>", "##"))
          for flags in ({}, dict(fuse_unk=True), dict(byte_fallback=True),
                        dict(byte_fallback=True, fuse_unk=True), dict(ignore_merges=True),
                        dict(unk_token=None), dict(dropout=0.5), dict(dropout=0.0))]


def trained(levels=False, suffix=None, prefix=None):
    """A small BPE with byte tokens."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    alphabet = ["\u2581", "#", " "]
    if levels:
        t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(made.corpus(8000, 3), tokenizers.trainers.BpeTrainer(
        vocab_size=620, show_progress=False, limit_alphabet=260 if levels else 80,
        special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)],
        initial_alphabet=alphabet, end_of_word_suffix=suffix or "",
        continuing_subword_prefix=prefix or ""))
    file = json.loads(t.to_str())
    file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]
    file.update(pre_tokenizer=None, decoder=None)
    return file


def forms():
    """The name of each form and its file."""
    plain, levels = trained(), trained(levels=True)
    for file, of in ((plain, "characters"), (levels, "bytes")):
        for part, steps in (("pre_tokenizer", PRE_TOKENIZERS), ("decoder", DECODERS),
                            ("normalizer", NORMALIZERS), ("post_processor", POST_PROCESSORS)):
            for value in steps:
                name = f"{of} {part} {json.dumps(value, ensure_ascii=False)}"
                yield name, {**file, part: value}
        for value in NORMALIZERS if file is plain else ():
            name = f"first word of {json.dumps(value, ensure_ascii=False)}"
            yield name, {**file, "normalizer": value, "pre_tokenizer": METASPACE[3]}
    for settings in MODELS:
        affixes = settings["end_of_word_suffix"], settings["continuing_subword_prefix"]
        for of in (False, True):
            file = trained(of, *affixes)
            file["model"].update(settings)
            for value in ([LEVELS[2], FALCON] if of else [None, step("Whitespace")]):
                made_ = copy.deepcopy({**file, "pre_tokenizer": value})
                yield f"{'bytes' if of else 'characters'} model {settings} {value}", made_
                for missing in ("<0xE4>", "a", "\u00e3"):
                    less = copy.deepcopy(made_)
                    id_ = less["model"]["vocab"].pop(missing, None)
                    if id_ is not None and not any(
                            missing in "".join(m) for m in less["model"]["merges"]):
                        yield f"without {missing} {settings} {value}", less
    for of in ("bert", "t5"):
        file = json.loads((REFERENCE / "tokenizers" / of / "tokenizer.json").read_text())
        for value in PRE_TOKENIZERS:
            yield f"{of} {json.dumps(value, ensure_ascii=False)}", {**file, "pre_tokenizer": value}


def samples():
    rng = random.Random(5)
    return ["", " ", "a", "\x01 b", " \u0301b", "\u0301b", "\u200bb",
            "  two  spaces ", "ab</w>a b\u2581c ##a", "\u2581a",
            "a1b22c333d4444 12",
            made.SOURCE[:200]] + [made.mixed_text(rng, 250) for _ in range(6)]


def outcome(file, directory, texts):
    """Returns whether the form is equal, differs or is refused, and why."""
    try:
        return compared(file, directory, texts)
    except BaseException as error:  # pyo3's exception for a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return f"the package panics: {error}"


def compared(file, directory, texts):
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(file))
    try:
        mine = weft.Tokenizer.from_directory(str(directory))
    except ValueError as error:
        return "refused: " + str(error).split("tokenizer.json: ")[-1]
    try:
        package = tokenizers.Tokenizer.from_str(path.read_text())
    except Exception as error:
        return f"the package refuses: {error}"
    rng = random.Random(7)
    for text in texts:
        ids = package.encode(text).ids
        if mine.encode(text) != ids:
            return f"DIFFERS in ids of {text[:30]!r}"
        for drawn in (ids, [rng.randrange(package.get_vocab_size()) for _ in range(40)]):
            for skip in (True, False):
                want = package.decode(drawn, skip_special_tokens=skip)
                stream = weft.TextStream(mine, skip_special=skip)
                # A stream does not wait for the end of a run of bytes that is not UTF-8.
                streamed = want if drawn is not ids else (
                    "".join(map(stream.push, drawn)) + stream.finish())
                if mine.decode(drawn, skip_special=skip) != want:
                    got = mine.decode(drawn, skip_special=skip)
                    return f"DIFFERS in text {got[:60]!r}, expected {want[:60]!r}"
                if streamed != want:
                    return "DIFFERS in streamed text"
    return "equal"


def test_every_form_is_equal_or_refused(tmp_path):
    texts = samples()
    results = {name: outcome(file, tmp_path, texts) for name, file in forms()}
    assert {n: r for n, r in results.items() if r.startswith("DIFFERS")} == {}
    assert sum(r == "equal" for r in results.values()) > len(results) / 2


if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as scratch:
        for name_, file_ in forms():
            print(outcome(file_, pathlib.Path(scratch), samples()), "|", name_, flush=True)
