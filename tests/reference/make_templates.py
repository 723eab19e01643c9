#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders public chat templates, and edits of them, with Jinja2 as transformers sets it up.

    make_templates.py NAME=FOLDER ...    (each folder is searched for *.jinja)

Writes templates.json: the conversations, and for each template its text, the hash of what it makes
of each conversation, and edits: [byte, removed bytes, inserted text, hash of all conversations].
The hash is FNV-1a of 64 bits in hexadecimal; 0 where Jinja2 raises an error. The templates are
those of the packages llama-cpp-python 0.3.36 (llama.cpp's models/templates, MIT), trl 1.16
(Apache-2.0), axolotl 0.19 (Apache-2.0) and of the source of vllm 0.33 (its examples, Apache-2.0).
Needs transformers 5.24 and jinja2 3.1.6.
"""
import datetime
import json
import pathlib
import random
import re
import sys

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
EDITS = 20


class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 24, 12, 30, 5)


chat_template_utils.datetime = Then


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a place",
        "parameters": {"type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "City, \"quoted\" & <b>"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "integer", "minimum": 1}}}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds numbers", "parameters": {
            "type": "object", "properties": {
                "a": {"type": ["number", "null"]},
                "b": {"type": "array", "items": {"type": "number"}},
                "c": {"type": "object", "properties": {"d": {"type": "boolean"}}}}},
        "return": {"type": "number", "description": "the sum"}}}]
DOCUMENTS = [{"doc_id": "1", "title": "\u00dcber", "text": "First text.\nTwo lines"},
             {"doc_id": "2", "title": "B", "text": "Second"}]


def call(name, arguments, number):
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def say(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def conversations():
    """The variables of each conversation, as transformers gives them to a template."""
    user, answer = ("user", " Who are you?\n"), ("assistant",
    "I'm a \u201cmodel\u201d \U0001f600.\n")
    plain = dict(bos_token="<s>", eos_token="</s>", tools=None, documents=None,
                 add_generation_prompt=True)
    yield {**plain, "messages": say(user)}
    yield {**plain, "messages": say(("system", "Be brief. "), user, answer,
                                    ("user", "\u00e4 <x> {y}"))}
    yield {**plain, "add_generation_prompt": False, "messages": say(user, answer, user, answer)}
    yield {**plain, "enable_thinking": False, "thinking": False,
           "messages": say(("system", ""), ("user", "Why?"),
                           ("assistant", "<think>\nhm\n</think>\n\nYes"),
                           ("user", "Sure? /no_think"))}
    with_calls = say(("system", "Use tools"), ("user", "Weather?"))
    with_calls.append({"role": "assistant", "content": "", "tool_calls": [
        call("get_weather", {"place": "K\u00f6ln", "days": 2, "on": True, "none": None}, 1),
        call("add", {"a": 1.5, "b": [1, 2e20], "c": {"d": "it's"}}, 2)]})
    with_calls += [{"role": "tool", "name": "get_weather", "tool_call_id": "call00001",
                    "content": "{\"t\": 7}"},
                   {"role": "tool", "name": "add", "tool_call_id": "call00002", "content": "3"}]
    with_calls += say(("assistant", "It is 7"), ("user", "Thanks"))
    yield {**plain, "tools": TOOLS, "messages": with_calls}
    yield {**plain, "tools": TOOLS[:1], "messages": say(user), "reasoning_effort": "high",
           "date_string": "24 Nov 2026"}
    parts = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "?"}]
    yield {**plain, "messages": [{"role": "user", "content": parts},
                                 {"role": "assistant", "content": [{"type": "text", "text": "A"}]},
                                 {"role": "user", "content": parts[:1]}]}
    yield {**plain, "documents": DOCUMENTS, "messages": [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2", "reasoning_content": "so\n", "thinking": "so\n"},
        {"role": "user", "content": "3"}]}


def render(template, variables):
    """The hash of the text; 0 for an error."""
    try:
        text = chat_template_utils._compile_jinja_template(template).render(**variables)
    except Exception:  # whatever Jinja2 or a template raises
        return 0, None
    return fnv(text.encode("utf-8", "replace")), text


PIPES = [' | trim', '|upper', '|string|length', " | replace('a', 'b')", ' | tojson', " ~ '!'",
         '[1:]', '[::-1]', "|default('x', true)", ' is defined', '|list', '.strip()',
         ".split(' ')[0]", '|title', ' * 2', " + 'z'", '|nope', '.nope', '|first', '|indent(2)',
         " if messages|length > 1 else 'one'", ' if false', "|map('upper')|join(',')",
         "|replace('\\n', '\\\\n')", '|reverse|string']
TAG = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}", re.S)


def edit(template, rng):
    """A place, what is removed there and what is inserted, in characters."""
    tags = list(TAG.finditer(template))

    def swap(pattern, by):
        found = list(re.finditer(pattern, template))
        if not found:
            return None
        at = rng.choice(found)
        return at.start(), at.end(), by(at.group()) if callable(by) else by

    def outside():
        at = rng.choice([0, len(template)] + [t.start() for t in tags] + [t.end() for t in tags])
        text = rng.choice(["You will be asked.\n", " ", "\n", "-", "{{ '' }}", "{# note #}\n",
                           "\n  {% set x = 1 %}\n", "{{ bos_token }}",
                           "{%- if true %} a {% endif -%}", "{{- messages[-1].role ~ loop }}",
                           "{% for a in 'xy' %}{{ a }},{% endfor %}"])
        return at, at, text

    def piped():
        text = rng.choice(PIPES)
        return swap(r"\s*-?}}", lambda end: text + end)

    def condition():
        return swap(r"==|!=| and | or |\bnot |\bif |true|false|\bis defined|\bis not |\bin\b| > ",
                    lambda word: {"==": "!=", "!=": "==", " and ": " or ", " or ": " and ",
                                  "not ": "", "if ": "if not ", "true": "false", "false": "true",
                                  "is not ": "is ", "in": "not in", " > ": " <= ",
                                  "is defined": rng.choice(["is none", "is string", "is mapping"])
                                  }[word])

    def control():
        return swap(r"{%-|-%}|{{-|-}}|{%(?!-)|(?<!-)%}|{{(?!-)|(?<!-)}}", lambda tag: (
            tag.replace("-", rng.choice(["", "", "+"]) if "%" in tag else "") if "-" in tag else
            tag + "-" if tag[0] == "{" else "-" + tag))

    def character():
        at = rng.randrange(len(template))
        return at, at + rng.randrange(2), rng.choice(
            ["", "", "'", "}", "(", " ", "\n", "a", "{", "%"])

    kinds = [outside, outside, piped, piped, piped, lambda: swap(r"\n", ""),
             lambda: swap(r"\\n", ""), condition, condition, condition, control, control, character,
             lambda: swap(r"\b[01]\b", lambda n: str(1 - int(n))),
             lambda: swap(r"\.(role|content|name|arguments)\b", lambda a: f"['{a[1:]}']"),
             lambda: swap(r"content|role|messages", rng.choice(["name", "x", "tools", "content"])),
             lambda: swap(r"{% ?(else|endif|endfor)", ""),
             lambda: swap(r"set \w+ =", lambda s: s.replace("=", "= 'q' ~")),
             lambda: swap(r"\|\s*(tojson|trim|length|string)", "")]
    while True:
        made = rng.choice(kinds)()
        if made and template[made[0]:made[1]] != made[2]:
            return made


def bytes_of(template, edit):
    begin, end, text = edit
    at = len(template[:begin].encode())
    return [at, len(template[begin:end].encode()), text]


def main():
    all_conversations = list(conversations())
    made = []
    seen = set()
    for argument in sys.argv[1:]:
        source, folder = argument.split("=", 1)
        for path in sorted(pathlib.Path(folder).rglob("*.jinja")):
            template = path.read_text()
            if template in seen or len(template) > 9000:
                continue
            seen.add(template)
            rng = random.Random(f"{source}/{path.name}")
            entry = dict(name=f"{source}/{path.name}", text=template,
                         hashes=[f"{render(template, c)[0]:x}" for c in all_conversations],
                         edits=[])
            while len(entry["edits"]) < EDITS:
                begin, end, text = edit(template, rng)
                edited = template[:begin] + text + template[end:]
                hashes = "".join(f"{render(edited, c)[0]:x}" for c in all_conversations)
                entry["edits"].append(bytes_of(template, (begin, end, text))
                                      + [f"{fnv(hashes.encode()):x}"])
            made.append(entry)
    (HERE / "templates.json").write_text(
        json.dumps(dict(conversations=all_conversations, templates=made), ensure_ascii=False,
                   separators=(",", ":")).replace('{"name":', '\n{"name":') + "\n")


if __name__ == "__main__":
    main()
