# SPDX-License-Identifier: Apache-2.0
"""Finds the functions of a C++ or Python source, their lines, and the tables among them."""
import ast
import re
from typing import NamedTuple

# Comments, literals and directives, whose braces do not count; then the signs that do.
TOKENS = re.compile(
    r"""(?=[/R"'\#{}();])(?:(?P<comment>//[^\n]*|/\*.*?\*/|\#(?:[^\n\\]|\\.)*)
    |R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"
    |(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'|[{}();])""",
    re.S | re.X,
)
SCOPE = re.compile(
    r"^(?:inline\s+)?namespace\b|^extern\s|^(?!.*\benum\b).*\b(?:class|struct|union)\s"
)
NAME = re.compile(r"(operator\s*[^\s\w(]+|operator\(\)|[~\w:]+)\s*\(")
ASSIGNS = re.compile(r"(?<![=!<>])=(?!=)")
BRANCHES = re.compile(r"^\s*(?:\}? ?else )?(?:if|for|while|switch) ", re.M)


class Function(NamedTuple):
    name: str
    line: int
    lines: int
    is_table: bool


def without_template(head):
    """The declaration without `template <...>`, whose `class T` is not a class."""
    head = head.strip()
    while match := re.match(r"template\s*<", head):
        depth, at = 1, match.end()
        while at < len(head) and depth:
            depth += {"<": 1, ">": -1}.get(head[at], 0)
            at += 1
        head = head[at:].strip()
    return head


def opened_by(head):
    """Names what a brace after the declaration `head` opens: "scope", a function, or None."""
    head = without_template(head)
    if SCOPE.search(re.split(r"[(={]", head)[0]):
        return "scope"
    named = NAME.search(head)
    return named[1] if named and not ASSIGNS.search(head[: named.start()]) else None


def cpp_functions(text):
    """Yields every function with a body at namespace or class scope; TEST(Suite, Name) is one."""
    open_braces = []  # (what it opens, where that begins)
    head, begin, parentheses, end, inner = "", None, 0, 0, 0
    for token in TOKENS.finditer(text):
        sign, start, end = token[0], end, token.end()
        parentheses += (sign == "(") - (sign == ")")
        if inner:  # below the brace of a function or of a value
            inner += (sign == "{") - (sign == "}")
            if inner:
                continue
        else:
            between = text[start : token.start()]
            if begin is None and between.strip():
                begin = token.start() - len(between.lstrip())
            head += between if token["comment"] or sign in "{};" else between + sign
        done = sign == ";" and not parentheses
        if sign == "{":
            what = opened_by(head) if not parentheses else None
            open_braces.append((what, token.start() if begin is None else begin))
            done, inner = what == "scope", int(what != "scope")
        elif sign == "}" and open_braces:
            what, first = open_braces.pop()
            done = what is not None
            if what not in {None, "scope"}:
                body = text[first:end]
                line = text.count("\n", 0, first) + 1
                yield Function(what, line, body.count("\n") + 1, not BRANCHES.search(body))
        if done:
            head, begin = "", None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno + 1 - node.lineno
            body = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
            yield Function(node.name, node.lineno, lines, not BRANCHES.search(body))


def functions(path, text):
    return python_functions(text) if path.suffix == ".py" else cpp_functions(text)
