# SPDX-License-Identifier: Apache-2.0
"""Makes the outside reference of weft's datasets with the packages tokenizers and transformers.

    python tests/reference/make_datasets.py

writes to tests/reference/datasets/ a small tokenizer with a chat template (tokenizer.json,
tokenizer_config.json), files of text, lines and conversations, and expected.json: the ids of each
document, whether each counts as a target, and the rows that documents become, padded, packed and
mixed. Rows follow the rules of include/weft/text_dataset.h, data/rows/rows.h and mixture.h, written
here a second time in plain Python.
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent / "datasets"
SOURCES = HERE.parent.parent.parent
IGNORED = -100
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
MARKING = (
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['role'] == 'assistant' %}"
    "{% generation %}{{- message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{%- else %}{{- message['content'] + '<|im_end|>' }}{%- endif %}{{- '\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
CHATS = [
    [("system", "Be brief."), ("user", "Who are you?"), ("assistant", "A model."),
     ("user", "Of what?"), ("assistant", "Of tensors, meshes and placements.")],
    [("user", "Say nothing."), ("assistant", "")],
    [("user", "Zeilen?"), ("assistant", "\n\nEine\n\nzweite \u00fc\u00df \U0001f44d\U0001f3fd ")],
    [("assistant", " I begin."), ("user", "Fine"), ("user", "twice"), ("assistant", "Yes.")],
    [("user", "Only a question?")],
    [("user", "Long"), ("assistant", "weft shards tensors over ranks. " * 12)],
]
COMPLETIONS = [("What is 1 + 1?", "2"), ("Colour of the sky?\n", "\nblue"), ("a", "b c d")]
LINES = ["A line.", "", "weft " * 40, "Tab\there, \u00e9t\u00e9 and \u4e2d\u6587.", "x",
         "Several words that make a document of some tokens.", "The end of it all."]


def make_tokenizer(text):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=420, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    made.save(str(HERE / "tokenizer.json"))
    (HERE / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
         "chat_template": TEMPLATE}, indent=1) + "\n")
    (HERE / "marking.jinja").write_text(MARKING)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>",
                                   chat_template=TEMPLATE)


def messages_of(chat):
    return [{"role": role, "content": content} for role, content in chat]


def overlapping(tokenizer, text, spans):
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return encoding["input_ids"], [
        int(any(begin < last and end > first for first, last in spans))
        for begin, end in encoding["offset_mapping"]]


def by_prefixes(tokenizer, messages):
    """The ids of a conversation, and those of the assistant's messages by the texts before them."""
    def text(count, prompts):
        return tokenizer.apply_chat_template(messages[:count], tokenize=False,
                                             add_generation_prompt=prompts) if count else ""
    spans = [(len(text(i, True)), len(text(i + 1, False)))
             for i, message in enumerate(messages) if message["role"] == "assistant"]
    return overlapping(tokenizer, text(len(messages), False), spans)


def by_blocks(tokenizer, messages):
    made = tokenizer.apply_chat_template(messages, chat_template=MARKING, return_dict=True,
                                         return_assistant_tokens_mask=True)
    return made["input_ids"], made["assistant_masks"]


def mix(x):
    mask = (1 << 64) - 1
    x = (x + 0x9e3779b97f4a7c15) & mask
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & mask
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & mask
    return x ^ (x >> 31)


def permuted(index, count, key):
    half = (((count - 1) | 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for step in range(4):
            left, right = right, left ^ (mix(mix((key + step) % 2**64) ^ right) & low)
        index = left << half | right
        if index < count:
            return index


def joined(documents, sequence):
    ids = sum((ids for ids, _ in documents), [])
    counts = sum((counts for _, counts in documents), [])
    targets = [i if c else IGNORED for i, c in zip(ids, counts)]
    return [(ids[i:i + sequence], targets[i + 1:i + sequence + 1], [0] * sequence)
            for i in range(0, (len(ids) - 1) // sequence * sequence, sequence)]


def parts_of(document, sequence):
    ids, counts = document
    targets = [i if c else IGNORED for i, c in zip(ids, counts)]
    return [(ids[i:min(i + sequence, len(ids) - 1)], targets[i + 1:i + 1 + sequence])
            for i in range(0, len(ids) - 1, sequence)]


def row_of(parts, sequence, padding):
    ids, targets, segments = [], [], []
    for number, (some, following) in enumerate(parts):
        ids, targets, segments = ids + some, targets + following, segments + [number] * len(some)
    left = sequence - len(ids)
    return (ids + [padding] * left, targets + [IGNORED] * left, segments + [len(parts)] * left)


def padded(documents, sequence, padding):
    return [row_of([part], sequence, padding) for document in documents
            for part in parts_of(document, sequence)]


def packed(documents, sequence, padding, seed):
    rows = []
    for i in range(len(documents)):
        for part in parts_of(documents[permuted(i, len(documents), mix(seed))], sequence):
            room = [sequence - sum(len(p[0]) for p in row) for row in rows]
            fitting = [(r, n) for n, r in enumerate(room) if r >= len(part[0])]
            if fitting:
                rows[min(fitting)[1]].append(part)
            else:
                rows.append([part])
    return [row_of(row, sequence, padding) for row in rows]


def shuffled(rows, index, seed):
    key = mix(mix(seed) ^ (index // len(rows)))
    return rows[permuted(index % len(rows), len(rows), key)]


def mixed(sources, weights, index, seed):
    shares = [sum(weights[:i + 1]) / sum(weights) for i in range(len(weights))]
    ends = [0] + [round(share * 2**40) for share in shares]
    block, place = divmod(index, 1024)
    before = [[block * 1024 * e >> 40, (block + 1) * 1024 * e >> 40] for e in ends]
    firsts = [after - start for start, after in before]
    key = mix(mix(~seed % 2**64) ^ block)

    def source_at(at):
        number = permuted(at, 1024, key)
        return max(s for s in range(len(sources)) if firsts[s] <= number)
    source = source_at(place)
    own = before[source + 1][0] - before[source][0]
    own += sum(source_at(at) == source for at in range(place))
    return shuffled(sources[source], own, seed ^ (source << 32))


def main():
    HERE.mkdir(exist_ok=True)
    (HERE / "text").mkdir(exist_ok=True)
    licence = (SOURCES / "LICENSE").read_text()
    texts = {"text/a.txt": licence[:1500],
             "text/b.txt": "Zwei S\u00e4tze.\n\nUnd mehr \U0001f600.\n"}
    tokenizer = make_tokenizer(licence[:4000] + "".join(c for chat in CHATS for _, c in chat))
    for name, text in texts.items():
        (HERE / name).write_text(text)
    lines = {"lines.jsonl": [{"text": line} for line in LINES],
             "named.jsonl": [{"id": i, "body": line} for i, line in enumerate(LINES)],
             "chat.jsonl": [{"messages": messages_of(chat)} for chat in CHATS],
             "completion.jsonl": [{"prompt": p, "completion": c} for p, c in COMPLETIONS]}
    for name, all_lines in lines.items():
        (HERE / name).write_text("".join(json.dumps(line) + "\n" for line in all_lines))
    eos = tokenizer.eos_token_id

    def of_text(text):
        ids = tokenizer.encode(text) + [eos]
        return ids, [1] * len(ids)
    chats = [messages_of(chat) for chat in CHATS]
    pairs = [[("user", p), ("assistant", c)] for p, c in COMPLETIONS]
    plain = [overlapping(tokenizer, p + c, [(len(p), len(p + c))]) for p, c in COMPLETIONS]
    documents = {
        "text": [of_text(text) for text in texts.values()],
        "lines": [of_text(line) for line in LINES],
        "chat": [by_prefixes(tokenizer, chat) for chat in chats],
        "marked": [by_blocks(tokenizer, chat) for chat in chats],
        "completion": [by_prefixes(tokenizer, messages_of(pair)) for pair in pairs],
        "plain": [(ids + [eos], counts + [1]) for ids, counts in plain]}
    sources = [joined(documents["text"], 32), padded(documents["lines"], 32, eos),
               padded(documents["chat"], 32, eos)]
    weights = [0.5, 0.3, 0.2]
    rows = {
        "joined": [shuffled(sources[0], i, 5) for i in range(len(sources[0]))],
        "padded": [shuffled(sources[2], i, 6) for i in range(2 * len(sources[2]))],
        "mixed": [mixed(sources, weights, i, 8) for i in [*range(60), 1023, 1024, 5000]]}
    for name in ["text", "lines", "chat"]:
        made = packed(documents[name], 32, eos, 7)
        rows["packed " + name] = [shuffled(made, i, 7) for i in range(2 * len(made))]
    (HERE / "expected.json").write_text(json.dumps({"documents": documents, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
