# SPDX-License-Identifier: Apache-2.0
"""Tokenizers, chat templates and generated text: against stored references, and against the
packages tokenizers, sentencepiece and transformers where they are installed."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import sysconfig

import numpy as np
import pytest
import weft

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference"
FAMILIES = sorted(p.name for p in (REFERENCE / "tokenizers").iterdir() if p.is_dir())
# Bytes of mixed text that the packages are compared on; 10000000 for the whole comparison.
SIZE = int(os.environ.get("WEFT_TOKENIZER_BYTES", "300000"))


def script():
    spec = importlib.util.spec_from_file_location("made", REFERENCE / "make_tokenizers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tokenizer_of(family):
    return weft.Tokenizer.from_directory(str(REFERENCE / "tokenizers" / family))


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_texts_are_those_of_the_reference(family):
    tokenizer = tokenizer_of(family)
    expected = json.loads((REFERENCE / "tokenizers/expected.json").read_text())[family]
    for case in expected["cases"]:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.encode(case["text"].encode()) == case["ids"]
        assert tokenizer.decode(case["ids"]) == case["skipped"]
        assert tokenizer.decode(case["ids"], skip_special=False) == case["kept"]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_texts_are_those_of_the_packages(family):
    pytest.importorskip("sentencepiece" if family.startswith("sentencepiece") else "tokenizers")
    made = script()
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    package = made.Package(REFERENCE / "tokenizers" / family)
    tokenizer = tokenizer_of(family)
    for text in made.corpus(SIZE, 5, files):
        if not package.is_json:  # weft finds control tokens in text, SentencePiece does not
            for token in package.control:
                text = text.replace(token, "")
        ids = package.encode(text)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == package.decode(ids, True)
        stream = weft.TextStream(tokenizer)
        assert "".join(map(stream.push, ids)) + stream.finish() == package.decode(ids, True)


def test_invalid_utf8_is_the_replacement_character():
    tokenizer = tokenizer_of("gpt2")
    broken = b"a\xf0\x9f\x98 b\xff\xfez \xe2\x82"
    assert tokenizer.encode(broken) == tokenizer.encode(broken.decode("utf-8", "replace"))


def test_tokens():
    tokenizer = tokenizer_of("llama3")
    assert len(tokenizer) == 700
    assert tokenizer.id("<|eot_id|>") == 2 and tokenizer.token(2) == "<|eot_id|>"
    assert tokenizer.id("no such token") is None
    assert tokenizer.is_special(2) and not tokenizer.is_special(3)
    with pytest.raises(ValueError, match="decode: the id is 700, expected 0 to 699"):
        tokenizer.decode([700])
    with pytest.raises(ValueError, match="tokenizer: .* is missing, expected a directory"):
        weft.Tokenizer.from_directory("no/such/place")
    with pytest.raises(TypeError, match="is not made by its class, expected Tokenizer.from_direc"):
        weft.Tokenizer("llama")


def test_chat():
    tokenizer = tokenizer_of("qwen2").with_chat_template("chatml")
    assert tokenizer.chat_template == "chatml" and "llama3.1" in weft.Tokenizer.chat_templates()
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.chat([("user", "hi")]) == text
    assert tokenizer.chat([{"role": "user", "content": "hi"}]) == text
    assert tokenizer.end_ids == [2]
    with pytest.raises(ValueError, match="chat: a message has no role or content"):
        tokenizer.chat([{"role": "user"}])


def test_apply_chat_template():
    tokenizer = tokenizer_of("qwen2")
    messages = [{"role": "user", "content": "hi", "calls": [{"a": 1.0}]}]
    form = "{{ messages[0].calls }}{{ tools|length }}{{ add_generation_prompt }}{{ extra }}"
    text = tokenizer.apply_chat_template(messages, tools=[1, 2], chat_template=form, tokenize=False,
                                         add_generation_prompt=True, extra="\u00fc")
    assert text == "[{'a': 1.0}]2True\u00fc"
    chatml = tokenizer.with_chat_template("chatml")
    ids = chatml.apply_chat_template(messages, add_generation_prompt=True)
    assert ids == chatml.encode(chatml.chat([("user", "hi")]), add_special=False)
    with pytest.raises(ValueError, match="chat: the argument return_tensors is given"):
        chatml.apply_chat_template(messages, return_tensors="pt")


@dataclasses.dataclass
class Message:
    role: str = "user"


HI = {"role": "user", "content": "hi"}
CIRCLE = []
CIRCLE.append(CIRCLE)
DEEP = []
for _ in range(100000):
    DEEP = [DEEP]
JSON = "expected JSON values; pass "
PLAIN = JSON + "dicts, lists, texts, numbers, bools or None"
NOT_JSON = [
    ([HI], {"tools": [tokenizer_of]}, TypeError,
     f"tools is a list with a function, {JSON}the schema as a dict"),
    ([HI], {"tools": len}, TypeError,
     f"tools is a builtin_function_or_method, {JSON}the schema as a dict"),
    ([Message()], {}, TypeError, f"conversation is a list with a Message, {PLAIN}"),
    ([{**HI, "ids": {1}}], {}, TypeError, f"conversation is a list with a set, {PLAIN}"),
    ({1}, {}, TypeError, f"conversation is a set, {PLAIN}"),
    ([HI], {"documents": [b"a"]}, TypeError, f"documents is a list with a bytes, {PLAIN}"),
    ([HI], {"extra": np.zeros(2)}, TypeError, f"extra is a ndarray, {PLAIN}"),
    ([HI], {"extra": np.longdouble(1)}, TypeError, f"extra is a longdouble, {PLAIN}"),
    ([HI], {"extra": {"a": 1j}}, TypeError, f"extra is a dict with a complex, {PLAIN}"),
    ([{**HI, (1, 2): 3}], {}, TypeError,
     "conversation has a dict with a key of the type tuple, expected str"),
    ([{**HI, "content": "a\ud83d"}], {}, ValueError,
     "conversation has a text with a lone surrogate, expected Unicode text"),
    ([HI], {"extra": float("nan")}, ValueError,
     "extra has NaN or infinity, expected finite numbers"),
    ([HI], {"tools": CIRCLE}, ValueError, "tools holds itself, expected values that do not"),
    ([HI], {"tools": DEEP}, ValueError, "tools is too deep, expected at most 200 levels"),
    ([[HI], [HI]], {}, TypeError,
     "conversation is a list of 2 conversations, expected a list of dicts; call it for each"),
]


@pytest.mark.parametrize("conversation, more, kind, sentence", NOT_JSON,
                         ids=[row[3][:40] for row in NOT_JSON])
def test_apply_chat_template_names_what_is_not_json(conversation, more, kind, sentence):
    chatml = tokenizer_of("qwen2").with_chat_template("chatml")
    with pytest.raises(kind) as caught:
        chatml.apply_chat_template(conversation, **more)
    assert str(caught.value) == "apply_chat_template: " + sentence


def test_apply_chat_template_takes_scalars_of_numpy():
    form = "{{ messages[0].n }} {{ extra }} {{ messages[0].content }}"
    message = {"role": "user", "content": "\U0001f469\u00fc", "n": np.int64(3)}
    text = tokenizer_of("qwen2").apply_chat_template(
        [message], chat_template=form, tokenize=False,
        extra=[np.bool_(True), np.float32(0.5), np.float64(2), np.array(7)])
    assert text == "3 [True, 0.5, 2.0, 7] \U0001f469\u00fc"


def test_chats_become_the_tokens_of_the_package(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    chats = json.loads((REFERENCE / "chat.json").read_text())
    texts = [case["text"] for cases in chats.values() for case in cases if case["text"]]
    form = re.compile(r"<[|\uff5c]?[/\w\u2581]+[|\uff5c]?>")
    marks = {mark for text in texts for mark in form.findall(text)}
    package = tokenizers.Tokenizer.from_file(str(REFERENCE / "tokenizers/llama3/tokenizer.json"))
    package.add_special_tokens(sorted(marks))
    package.save(str(tmp_path / "tokenizer.json"))
    tokenizer = weft.Tokenizer.from_directory(str(tmp_path))
    assert len(marks) > 15
    for text in texts:
        text += "\U0001f469\u200d\U0001f467 \u00fcber"
        ids = package.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special=False) == ids
        for skip in (True, False):
            expected = package.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special=skip) == expected
            stream = weft.TextStream(tokenizer, skip_special=skip)
            parts = [stream.push(id) for id in ids] + [stream.finish()]
            assert "".join(parts) == expected
            assert not any("\ufffd" in part for part in parts)


def small_model(mesh):
    config = weft.TransformerConfig(dim=16, layers=1, heads=2, kv_heads=1, ffn=24, vocabulary=700,
                              max_sequence=64)
    weft.manual_seed(3)
    model = weft.TransformerModel(config)
    weft.parallelize(model, mesh["tp"], weft.transformer_styles(config))
    model.materialize()
    return model


def test_generate():
    def body(world):
        mesh = weft.DeviceMesh(world, {"tp": 1})
        model, tokenizer = small_model(mesh), tokenizer_of("llama3")
        ids = weft.generate(model, [3, 4, 5], mesh=mesh, tokens=6, temperature=0)
        assert len(ids) == 6
        assert weft.generate(model, [[3, 4, 5], [3, 4, 5]], mesh=mesh, tokens=6,
                             temperature=0) == [ids, ids]
        numbers = list(np.array([3, 4, 5]))
        assert weft.generate(model, numbers, mesh=mesh, tokens=6, temperature=0) == ids
        arrays = [np.array([3, 4, 5])]
        assert weft.generate(model, arrays, mesh=mesh, tokens=6, temperature=0) == [ids]
        for special in (True, False):
            expected = weft.generate(model, tokenizer.encode("def", add_special=special), mesh=mesh,
                                     tokenizer=tokenizer, tokens=9, temperature=0)
            assert weft.generate(model, "def", mesh=mesh, tokenizer=tokenizer, tokens=9,
                                 temperature=0, add_special=special) == expected
        prompts, seen = ["def", "area of a", "d"], [[], [], []]
        texts = weft.generate(model, prompts, mesh=mesh, tokenizer=tokenizer, tokens=9, seed=5,
                              batch=2, use=lambda i, part: seen[i].append(part))
        assert texts == ["".join(parts) for parts in seen]
        for i, prompt in enumerate(prompts):
            one = dict(mesh=mesh, tokenizer=tokenizer, tokens=9)
            assert weft.generate(model, prompt, seed=5 + i, **one) == texts[i]
            assert weft.generate(model, prompts, seed=[4, 5 + i, 6], **one)[1] == weft.generate(
                model, prompts[1], seed=5 + i, **one)
        with pytest.raises(ValueError, match="number of seeds is 1, expected that of the prompts"):
            weft.generate(model, prompts, seed=[4], mesh=mesh, tokenizer=tokenizer)
        drawn = [weft.generate(model, [3], mesh=mesh, tokens=9, seed=s) for s in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]
        parts = []
        text = weft.generate(model, "def area", mesh=mesh, tokenizer=tokenizer, tokens=20, seed=4,
                             use=parts.append)
        assert text == "".join(parts)
        stop = text[3:5]
        stopped = weft.generate(model, "def area", mesh=mesh, tokenizer=tokenizer, tokens=20,
                                seed=4, stops=[stop])
        assert stopped == text[:text.index(stop)]
        with pytest.raises(ValueError, match="the tokenizer is None, expected one for texts"):
            weft.generate(model, "def", mesh=mesh)
        return True

    assert weft.run_ranks(1, body) == [True]


@pytest.mark.parametrize("options", [
    {}, {"temperature": 0.3}, {"top_k": 7}, {"top_p": 0.6}, {"top_p": 0.05}, {"min_p": 0.1},
    {"repetition_penalty": 1.7},
    {"temperature": 1.4, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 0.8}])
def test_probabilities_are_those_of_transformers(options):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    t = transformers
    logits = np.random.default_rng(1).normal(size=50) * 3
    seen = [1, 4, 4, 9, 49]
    steps = [t.RepetitionPenaltyLogitsProcessor(options.get("repetition_penalty", 1.0)),
             t.TemperatureLogitsWarper(options.get("temperature", 1.0))]
    if "top_k" in options:
        steps.append(t.TopKLogitsWarper(options["top_k"]))
    if "top_p" in options:
        steps.append(t.TopPLogitsWarper(options["top_p"]))
    if "min_p" in options:
        steps.append(t.MinPLogitsWarper(options["min_p"]))
    expected = torch.tensor(logits)[None]
    for step in steps:
        expected = step(torch.tensor([seen]), expected)
    actual = weft.next_probabilities(list(logits), seen, **{"temperature": 1.0, **options})
    np.testing.assert_allclose(actual, expected.softmax(-1)[0].numpy(), atol=1e-12)
