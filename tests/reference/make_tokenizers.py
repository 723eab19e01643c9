# SPDX-License-Identifier: Apache-2.0
"""Makes the outside reference of weft's tokenizers with the packages tokenizers, sentencepiece and
transformers.

    python tests/reference/make_tokenizers.py [TEMPLATES]

writes beside itself

    tokenizers/<name>/tokenizer.json or tokenizer.model
                    a small tokenizer in the settings of a family, trained here
    tokenizers/expected.json
                    texts, and by tokenizer the ids of each, what they decode to with and without
                    special tokens, and what ids drawn at random decode to
    chat.json       conversations as `apply_chat_template` of transformers writes them, by template

TEMPLATES is a directory of the families' published Jinja templates, <name>.jinja, which are not
part of weft: the chat_template of the tokenizer_config.json of Llama-2-7b-chat-hf (llama2), Meta-
Llama-3-8B-Instruct (llama3), Llama-3.1-8B-Instruct (llama3.1), Llama-3.2-1B-Instruct (llama3.2),
Mistral-7B-Instruct-v0.1 (mistral-v0.1), v0.2 before and after its system prompt (mistral, mistral-
v1), Mixtral-8x22B-Instruct-v0.1 (mixtral-8x22b), Mistral-Large-Instruct-2407 (mistral-v3), Mistral-
Nemo-Instruct-2407 (mistral-v3-tekken), ChatML, SmolLM2,
Qwen2, Qwen2.5, Qwen3, Qwen3-2507 (qwen3-instruct), Gemma, Gemma 3, Phi-3-mini, Phi-3.5, Zephyr,
OLMo 2, Granite 3.0, Granite 3.1 to 3.3 (granite3.1), Granite 3.3 as first published (granite3.3-
first), SmolLM3, DeepSeek-V2-Chat (deepseek-v2) and DeepSeek-V3 (deepseek-v3). Templates that it
lacks keep their conversations in chat.json. `corpus` is also what tests/python/tokenizer_test.py
compares the packages on.
"""

import base64
import json
import pathlib
import random
import re
import sys
import time
import unicodedata

HERE = pathlib.Path(__file__).parent
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
RANGES = [(0x41, 0x7a), (0xc0, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea),
          (0x620, 0x64a), (0x900, 0x963), (0xe01, 0xe3a), (0x1100, 0x11ff), (0x3041, 0x3096),
          (0x30a1, 0x30fa), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1e00, 0x1eff), (0x2000, 0x206f),
          (0x20a0, 0x20bf), (0x2190, 0x21ff), (0x1f300, 0x1f64f), (0x300, 0x36f), (0xff00, 0xffef)]
EMOJI = ["\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467",
         "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea",
         "\u2764\ufe0f", "\u2460", "\u00bd"]
SPACES = [" ", "  ", "\t", "\n", "\n\n", "\r\n", " \n", "\t\t  ", "\u00a0", "\u2003", "\u3000",
          "        ", "\n    ", "\u2028", "\x85", "\x0b", "\x1c"]
WORDS = ["don't", "I'LL", "we've", "it's", "THEY'RE", "'tis", "na\u00efve", "l'\u00e9t\u00e9",
         "\u017f's", "e\u0301te\u0301", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "[MASK]"]
SOURCE = '''def area(radius: float) -> float:
    """The area of a circle."""
    return 3.14159 * radius ** 2  # about


class Shape {\n  int sides_ = 0;  // none\n public:\n  int sides() const { return sides_; }\n};
The quick brown fox jumps over the lazy dog. Numbers: 12345, 1e-9, 0x1F, 2026-11-24.
'''


def mixed_text(rng, size):
    """Words of several scripts, emoji, numbers, punctuation and runs of white space."""
    parts, length = [], 0
    while length < size:
        kind = rng.random()
        if kind < .55:
            low, high = rng.choice(RANGES)
            part = "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))
        elif kind < .62:
            part = rng.choice(EMOJI)
        elif kind < .70:
            part = str(rng.randint(0, 10 ** rng.randint(1, 12)))
        elif kind < .80:
            part = rng.choice(WORDS)
        elif kind < .84:
            part = "".join(rng.choice("!?.,;:()[]{}<>/\\|@#$%^&*-_=+~`'\"") for _ in range(4))
        else:
            part = rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5, 40])
        parts += [part, rng.choice(["", " ", " ", " ", "\n"])]
        length += len(part.encode()) + 1
    return "".join(parts)


def corpus(size, seed, files=()):
    """Texts of together about `size` bytes: files (of source code) alternating with mixed text."""
    rng, texts, length = random.Random(seed), [], 0
    files = list(files)
    rng.shuffle(files)
    while length < size:
        source = pathlib.Path(files.pop()).read_bytes()[:200_000] if files else b""
        text = source.decode("utf-8", "replace") or SOURCE
        texts += [text, mixed_text(rng, max(2000, len(text) // 3))]
        length += sum(len(t.encode()) for t in texts[-2:])
    return texts


def byte_level(texts, size, pre, specials, normalizer=None, post=None, ignore_merges=False):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if post:
        t.post_processor = post(t)
    return json.loads(t.to_str())


def byte_level_families(texts, size=700):
    from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers as pre, processors
    split = lambda pattern: pre.Split(Regex(pattern), "isolated")
    raw = lambda: pre.ByteLevel(add_prefix_space=False, use_regex=False)
    bos = lambda name: lambda t: processors.TemplateProcessing(
        single=name + " $A", pair=f"{name} $A {name} $B",
        special_tokens=[(name, t.token_to_id(name))])
    end, chatml = "<|endoftext|>", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return {
        "gpt2": byte_level(texts, size, pre.ByteLevel(add_prefix_space=False), [end]),
        "llama3": byte_level(texts, size, pre.Sequence([split(SPLIT), raw()]),
                             ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
                             post=bos("<|begin_of_text|>"), ignore_merges=True),
        "qwen2": byte_level(texts, size, pre.Sequence([split(SPLIT.replace("{1,3}", "")), raw()]),
                            chatml, normalizer=normalizers.NFC()),
        "smollm": byte_level(texts, size, pre.Sequence([pre.Digits(individual_digits=True),
                                                  pre.ByteLevel(add_prefix_space=False)]), chatml),
        "roberta": byte_level(texts, size, pre.ByteLevel(add_prefix_space=True),
                              ["<s>", "<pad>", "</s>", "<unk>",
                               AddedToken("<mask>", lstrip=True, special=True)],
                              post=lambda t: processors.RobertaProcessing(("</s>", 2), ("<s>", 0))),
    }


def trained_spaced(texts, size, byte_fallback):
    """BPE of characters as text of a tokenizer.json."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581*[^\u2581\n]+|\u2581+|\n+"), "isolated")
    bytes_ = [f"<0x{i:02X}>" for i in range(256)] if byte_fallback else []
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, show_progress=False,
        limit_alphabet=120, initial_alphabet=["\u2581"]))
    return t.to_str()


def spaced(trained, normalizer, pre_tokenizer, decoder, added=()):
    """BPE of characters as converters of SentencePiece models write it."""
    made = json.loads(trained)
    made["added_tokens"] = [a for a in made["added_tokens"] if not a["content"].startswith("<0x")]
    first = len(made["model"]["vocab"])
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    made["added_tokens"] += [{**flags, "id": first + i, **a} for i, a in enumerate(added)]
    made.update(normalizer=normalizer, pre_tokenizer=pre_tokenizer, decoder=decoder)
    made["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return made


def spaced_families(texts, size=800):
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    metaspace = lambda **kw: {"type": "Metaspace", "replacement": "\u2581", **kw}
    sequence = lambda *steps: {"type": "Sequence", "decoders": list(steps)}
    fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    prepend = {"type": "Sequence",
               "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    by_space = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                "invert": False}
    always = metaspace(prepend_scheme="always", split=True)
    user = [{"content": "<|user|>", "rstrip": True}]
    of_bytes, plain = (trained_spaced(texts, size, bytes_) for bytes_ in (True, False))
    return {
        "llama2": spaced(of_bytes, prepend, None, sequence(back, fallback, fuse, strip),
                         added=user),
        "gemma": spaced(of_bytes, replace, by_space, sequence(back, fallback, fuse)),
        "mistral": spaced(of_bytes, None, metaspace(prepend_scheme="first", split=False),
                          sequence(back, fallback, fuse, strip)),
        "metaspace": spaced(plain, None, always, always),
    }


def clip(texts, size):
    """BPE of bytes whose words end with "</w>"."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers as pre, processors
    from tokenizers import decoders, trainers
    end, words = "<|endoftext|>", (r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d"
                                   r"|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    t = Tokenizer(models.BPE(unk_token=end, continuing_subword_prefix="",
                             end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre.Sequence([pre.Split(Regex(words), "removed", invert=True),
                                    pre.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|startoftext|>", end], show_progress=False,
        end_of_word_suffix="</w>", initial_alphabet=pre.ByteLevel.alphabet()))
    t.post_processor = processors.RobertaProcessing((end, 1), ("<|startoftext|>", 0),
                                                    trim_offsets=False, add_prefix_space=False)
    return json.loads(t.to_str())


def composed_families(texts, size=800):
    """Families that combine the steps of the others."""
    from tokenizers import Regex, pre_tokenizers as pre
    falcon = pre.Sequence([pre.Punctuation("contiguous"), pre.ByteLevel(add_prefix_space=False),
                           pre.Digits(), pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    words = clip(texts, size)
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
             "split": False}
    back = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]}
    return {
        "clip": words,
        "clip_words": {**words, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}},
        "falcon": byte_level(texts, size, falcon, ["<|endoftext|>", ">>TITLE<<"]),
        "chatglm": spaced(trained_spaced(texts, size, True), {"type": "Nmt"}, space, back,
                          added=[{"content": "<|user|>"}]),
    }


def word_piece_families(texts, size=700):
    from tokenizers import (Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)
    made = {}
    for name, lower in (("bert", True), ("bert_cased", False)):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer(lowercase=lower)
        t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        t.train_from_iterator(texts, trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            show_progress=False, limit_alphabet=200))
        t.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        made[name] = json.loads(t.to_str())
    return made


def train_sentencepiece(texts, directory, kind, size=1000, **settings):
    import sentencepiece
    source = directory / "source.txt"
    # Repeated, so that rare characters become bytes or unknown and the file stays small.
    source.write_text("\n".join(texts + [SOURCE] * 2000).replace("\x00", ""))
    plain = kind == "bpe"
    sentencepiece.SentencePieceTrainer.train(
        input=str(source), model_prefix=str(directory / "tokenizer"), vocab_size=size,
        model_type=kind, byte_fallback=plain, character_coverage=.98, minloglevel=2,
        max_sentence_length=100000, split_digits=True, num_threads=1,
        remove_extra_whitespaces=not plain, hard_vocab_limit=plain,
        **(settings or dict(normalization_rule_name="identity" if plain else "nmt_nfkc")))
    source.unlink()
    (directory / "tokenizer.vocab").unlink()


def fields(message):
    """The numbers and values of a message of protocol buffers; numbers of 4 and 8 bytes are left
    out."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
        elif wire == 2:
            size = varint()
            yield number, message[at:at + size]
            at += size
        else:
            at += 4 if wire == 5 else 8


def small_rules():
    """Some of the replacements of NFKC, of compositions and of white space, as lines of hexadecimal
    code points."""
    points = lambda text: " ".join(f"{ord(c):X}" for c in text)
    ranges = ((0xa0, 0x17f), (0x2000, 0x206f), (0x2460, 0x2473), (0xff01, 0xff9f), (0xfb00, 0xfb06))
    single = [chr(c) for low, high in ranges for c in range(low, high)]
    pairs = [a + chr(m) for a in "AEIOUaeiou" for m in range(0x300, 0x304)]
    rules = {t: unicodedata.normalize("NFKC", t) for t in single + pairs}
    rules |= {c: " " for c in "\t\n\r\u2028\u3000"} | {"\u200b": "", "\u200d": ""}
    rules["\uff76\uff9e"] = "\u30ac"
    return "".join(f"{points(a)}\t{points(b)}\n" for a, b in sorted(rules.items()) if a != b)


def trained_pieces(texts, directory, size, **settings):
    """The pieces and scores of a Unigram model of SentencePiece, and its table of replacements in
    base64."""
    import sentencepiece
    train_sentencepiece(texts, directory, "unigram", size, **settings)
    path = directory / "tokenizer.model"
    it = sentencepiece.SentencePieceProcessor(str(path))
    pieces = [[it.id_to_piece(i), it.get_score(i)] for i in range(it.get_piece_size())
              if not (it.is_control(i) or it.is_unknown(i))]
    spec = next(value for number, value in fields(path.read_bytes()) if number == 3)
    path.unlink()
    return pieces, base64.b64encode(next(v for n, v in fields(spec) if n == 2)).decode()


def unigram(pieces, specials, normalizer, pre_tokenizer, decoder, single, fallback=False):
    """Unigram as converters of SentencePiece models write it; `single` is its template."""
    vocab = [[token, 0.0] for token in specials] + pieces
    vocab += [[f"<0x{i:02X}>", 0.0] for i in range(256 if fallback else 0)]
    flags = dict(single_word=False, rstrip=False, normalized=False, special=True)
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "decoder": decoder,
        "added_tokens": [{"id": i, "content": token, "lstrip": token == "<mask>", **flags}
                         for i, token in enumerate(specials)],
        "model": {"type": "Unigram", "unk_id": specials.index("<unk>"), "vocab": vocab,
                  "byte_fallback": fallback},
        "post_processor": {
            "type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "single": [{"Sequence" if x == "A" else "SpecialToken": {"id": x, "type_id": 0}}
                       for x in single],
            "special_tokens": {x: {"id": x, "ids": [specials.index(x)], "tokens": [x]}
                               for x in single if x != "A"}}}


def unigram_families(texts, directory, size=1000, **settings):
    rules = directory / "rules.tsv"
    rules.write_text(small_rules())
    pieces, table = trained_pieces(texts, directory, size,
                                   **(settings or dict(normalization_rule_tsv=str(rules))))
    rules.unlink()
    precompiled = {"type": "Precompiled", "precompiled_charsmap": table}
    replace = lambda a, b: {"type": "Replace", "pattern": a, "content": b}
    sequence = lambda *steps: {"type": "Sequence", "normalizers": list(steps)}
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
             "split": True}
    both = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}
    back = {"type": "Sequence", "decoders": [replace({"String": "\u2581"}, " "),
                                             {"type": "ByteFallback"}, {"type": "Fuse"}]}
    albert = sequence(replace({"String": "``"}, '"'), replace({"String": "''"}, '"'),
                      {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                      precompiled)
    t5 = sequence(precompiled, {"type": "Strip", "strip_left": False, "strip_right": True},
                  replace({"Regex": " {2,}"}, "\u2581"))
    return {
        "t5": unigram(pieces, ["<pad>", "</s>", "<unk>", "<extra_id_0>"], t5, space, space,
                      ["A", "</s>"]),
        "xlm_roberta": unigram(pieces, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], precompiled,
                               both, space, ["<s>", "A", "</s>"]),
        "albert": unigram(pieces, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], albert, space,
                          space, ["[CLS]", "A", "[SEP]"]),
        "unigram_bytes": unigram(pieces, ["<pad>", "<eos>", "<bos>", "<unk>"],
                                 replace({"String": " "}, "\u2581"), None, back,
                                 ["<bos>", "A"], fallback=True),
    }


class Package:
    """A tokenizer of one of the two packages."""

    def __init__(self, directory):
        self.is_json = (directory / "tokenizer.json").exists()
        if self.is_json:
            from tokenizers import Tokenizer
            self.it = Tokenizer.from_file(str(directory / "tokenizer.json"))
            self.size = self.it.get_vocab_size()
        else:
            import sentencepiece
            self.it = sentencepiece.SentencePieceProcessor(str(directory / "tokenizer.model"))
            self.size = self.it.get_piece_size()
            self.control = [self.it.id_to_piece(i) for i in range(self.size)
                            if self.it.is_control(i)]

    def encode(self, text):
        return self.it.encode(text).ids if self.is_json else self.it.encode(text)

    def fast(self, text):
        """Encodes without the places of tokens in the text, which weft has none of."""
        return self.it.encode_batch_fast([text]) if self.is_json else self.it.encode(text)

    def decode(self, ids, skip):
        if self.is_json:
            return self.it.decode(ids, skip_special_tokens=skip)
        return self.it.decode(ids)


def expectations(directory, texts, rng):
    package = Package(directory)
    if not package.is_json:  # weft finds control tokens in text, SentencePiece does not
        texts = [t.replace("<s>", "").replace("</s>", "") for t in texts]
    drawn = [[rng.randrange(3, package.size) for _ in range(60)] for _ in range(4)]
    cases = [dict(text=t, ids=(ids := package.encode(t)), skipped=package.decode(ids, True),
                  kept=package.decode(ids, False)) for t in texts]
    return dict(cases=cases, drawn=[dict(ids=i, text=package.decode(i, False)) for i in drawn])


def write_tokenizers(families, out):
    for name, made in families.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False))


def train_large(texts, size, out):
    """Trains a tokenizer of each family and kind with `size` tokens; returns their directories.
    Kinds that `out` has are not trained again."""
    def train_kind(kind):
        def train(directory):
            (directory / f"sentencepiece_{kind}").mkdir(parents=True, exist_ok=True)
            train_sentencepiece(texts, directory / f"sentencepiece_{kind}", kind, size)
        return train

    kinds = {
        "byte_level": lambda d: write_tokenizers(byte_level_families(texts, size), d),
        "spaced": lambda d: write_tokenizers(spaced_families(texts, size), d),
        "word_piece": lambda d: write_tokenizers(word_piece_families(texts, size), d),
        "unigrams": lambda d: write_tokenizers(
            unigram_families(texts, out, size, normalization_rule_name="nmt_nfkc"), d),
        "bpe": train_kind("bpe"), "unigram": train_kind("unigram")}
    for kind, train in kinds.items():
        if any((out / kind).glob("*/tokenizer.*")):
            continue
        began = time.perf_counter()
        train(out / kind)
        print(f"trained {kind} in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return sorted(path.parent for path in out.glob("*/*/tokenizer.*"))


def make_tokenizers():
    rng = random.Random(11)
    texts = corpus(60_000, 7)
    out = HERE / "tokenizers"
    write_tokenizers(byte_level_families(texts) | spaced_families(texts)
                     | composed_families(texts) | word_piece_families(texts)
                     | unigram_families(texts, HERE), out)
    for kind in ("bpe", "unigram"):
        directory = out / f"sentencepiece_{kind}"
        directory.mkdir(parents=True, exist_ok=True)
        train_sentencepiece(texts, directory, kind)
    samples = ["", " ", "a", "  two  spaces ", SOURCE] + [mixed_text(rng, 300) for _ in range(8)]
    expected = {d.name: expectations(d, samples, random.Random(d.name))
                for d in sorted(out.iterdir()) if d.is_dir()}
    (out / "expected.json").write_text(json.dumps(expected))


def conversations(name):
    user, answer = ("user", "  Who are {bos} you? \n"), ("assistant", " I am <b>weft</b>.\n")
    system = ("system", " Be brief. ")
    for messages in ([user], [system, user], [user, answer, user], [system, user, answer, user],
                     [user, answer], [("system", ""), user],
                     [user, ("assistant", "<think>\nhm\n</think>\n\nYes"), ("user", "\u00fcber"),
                      ("assistant", "<think>\nno\n</think>\n\nNo")]):
        yield [dict(role=r, content=c) for r, c in messages]
    if name == "smollm3":
        for text in ("Be brief. /no_think \n", " /think", "/no_think/think", " Rhyme./think",
                     "/no_think Only rhyme. /system_override\n"):
            yield [dict(role=r, content=c) for r, c in (("system", text), user, answer, user)]


def make_chats(templates):
    from transformers import PreTrainedTokenizerFast
    from tokenizers import Tokenizer, models
    plain = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>",
                                    eos_token="</s>")
    made = json.loads((HERE / "chat.json").read_text())
    for path in sorted(templates.glob("*.jinja")):
        cases = made[path.stem] = []
        # Some templates ask for the date of today only.
        template = re.sub(r"strftime_now\([^)]*\)", "date_string", path.read_text())
        for messages in conversations(path.stem):
            for generation in (True, False):
                for thinking in (True, False) if path.stem in ("qwen3", "smollm3") else (True,):
                    try:
                        text = plain.apply_chat_template(
                            messages, chat_template=template, tokenize=False,
                            add_generation_prompt=generation, date_string="24 Nov 2026",
                            enable_thinking=thinking)
                    except Exception:
                        text = None  # the template refuses the messages
                    cases.append(dict(messages=messages, generation_prompt=generation,
                                      thinking=thinking, text=text))
    made = dict(sorted(made.items(), key=lambda entry: entry[0] + ".jinja"))
    (HERE / "chat.json").write_text(json.dumps(made, indent=0))


if __name__ == "__main__":
    make_tokenizers()
    if len(sys.argv) > 1:
        make_chats(pathlib.Path(sys.argv[1]))
