#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the form of the library's error texts and prints those that break it, as file:line.

    check_errors.py [ROOT]

An argument error is `<op>: <thing> is <actual>, expected <what>[; <cure>]`, or a bound,
`<op>: <thing> must be at least 1, got 0`; a command-line flag may replace `<op>: <thing>`. A failed
call is `<operation>: <what happened>[; <facts>]`; what a file holds is at fault in
`<operation>: <file>: <what is wrong>`. Texts start in lower case and have no full stop.
"""
import ast
import re
import sys
from pathlib import Path

FOLDERS = ("include", "src", "mesh", "ops", "nn", "fsdp", "tp", "pipeline", "checkpoint", "data",
           "train", "cli", "python", "c")
CALL = re.compile(r"(?<![\w.>])(fail|fail_call|throw_invalid_argument|throw_runtime_error|"
                  r"py::(?:type|value|index|key|attribute)_error)\(")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
LITERALS = re.compile(r'(?:"(?:[^"\\]|\\.)*"\s*)+')
NAME = r"(?:\{\}|[a-z_][\w .-]*)"
IDIOMS = re.compile(r"\b(?:is no|there is no|there are no|to be had|nobody|somebody|whom|beside)\b|"
                    r"\bis there\b|\b(?:its|one's) own\b")

FAILED_FILE = re.compile(r"\bcannot (?:open|read|list)\b|\bcannot be (?:read|written)\b")


def split_arguments(text, at):
    """The arguments of a C++ call whose opening bracket ends before `at`."""
    arguments, start, depth, i = [], at, 1, at
    while i < len(text):
        quoted = LITERAL.match(text, i) or re.compile(r"'(?:\\.|[^\\'])'").match(text, i)
        if quoted:
            i = quoted.end()
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0 or (depth == 1 and text[i] == ","):
            arguments.append(text[start:i].strip())
            start = i + 1
        if depth == 0:
            break
        i += 1
    return arguments


def text_of(argument):
    """A literal without its quotes; the texts within concat(); {} for all other expressions."""
    if LITERALS.fullmatch(argument):
        return "".join(LITERAL.findall(argument))
    if argument.startswith("concat("):
        return "".join(map(text_of, split_arguments(argument, len("concat("))))
    return "{}"


def texts_of_cpp(source):
    """(line, kind, text) of each error that the source throws itself."""
    source = re.sub(r"(?m)^[ \t]*//.*$", "", source)
    for call in CALL.finditer(source):
        arguments = split_arguments(source, call.end())
        texts = [text_of(argument) for argument in arguments]
        is_of_peer = call[1] == "fail" and arguments[0] == "call" and len(texts) > 1
        if is_of_peer:  # NCCL's errors, which name the call and its group
            texts = texts[2 if texts[1] == "{}" else 0 :]
        is_call = is_of_peer or call[1] in ("fail_call", "throw_runtime_error")
        if call[1] == "fail_call":
            texts.insert(1, ": ")
        text = "".join(texts)
        if text.strip("{}: "):  # neither a declaration nor a text made elsewhere
            yield source.count("\n", 0, call.start()) + 1, "call" if is_call else "argument", text


def texts_of_python(source):
    for node in ast.walk(ast.parse(source)):
        raised = node.exc if isinstance(node, ast.Raise) else None
        if not (isinstance(raised, ast.Call) and raised.args):
            continue
        message = raised.args[0]
        parts = message.values if isinstance(message, ast.JoinedStr) else [message]
        text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
        if text.strip("{}: "):
            is_call = getattr(raised.func, "id", "") in ("RuntimeError", "OSError")
            yield node.lineno, "call" if is_call else "argument", text


def mistake_in(kind, text, folder):
    """Returns what breaks the form, or None."""
    if re.match(r"\S+ has no attribute |[a-z_][\w ]*: \{\}$", text):
        return None  # as Python says it, or a text made elsewhere
    is_of_flag = folder == "cli" and re.match(r"(?:\{\})+ (?:is|has) ", text)  # flag or value
    is_of_flag = is_of_flag or (folder == "train" and text.startswith("{}"))  # option_names.h
    name = NAME if kind == "argument" else rf"(?:{NAME}|[A-Za-z_]\w+)"  # MPI_Init, cudnn plans
    if not is_of_flag and not re.match(rf"{name}: |--[a-z]", text):
        return "must begin with '<op>: ' or a flag"
    if re.match(rf"{NAME}: [A-Z][a-z]+\b(?!\()", text):
        return "must go on in lower case"
    if re.search(r"[.!?]$|\\n", text):
        return "must not end with '.', '!', '?' or a line break"
    if (idiom := IDIOMS.search(text)) is not None:
        return f"must not say '{idiom[0]}'"
    is_of_file = re.match(rf"{NAME}: \{{\}}: ", text) or FAILED_FILE.search(text)
    is_argument = kind == "argument" and not is_of_file
    if is_argument and not re.search(r", expected |must be .*, got | does not exist", text):
        return "must say ', expected ...', or 'must be ..., got ...'"
    return None


def offenders(root):
    """(file, line, text, mistake) of each text that is not in the form."""
    for folder in FOLDERS:
        for path in sorted(Path(root, folder).rglob("*")):
            if path.suffix in (".cpp", ".h", ".cu", ".cuh"):
                texts = texts_of_cpp(path.read_text())
            elif path.suffix == ".py":
                texts = texts_of_python(path.read_text())
            else:
                continue
            for line, kind, text in texts:
                if (mistake := mistake_in(kind, text, folder)) is not None:
                    yield path.relative_to(root), line, text, mistake


def main(arguments):
    wrong = list(offenders(Path(arguments[0] if arguments else ".")))
    for path, line, text, mistake in wrong:
        print(f"{path}:{line}: {mistake}: {text}")
    print(f"{len(wrong)} wrong texts")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
