# SPDX-License-Identifier: Apache-2.0
"""Writes the C++ reference: a page a public header, each declaration with its comment."""

import re

LICENCE = "// SPDX"


def declarations(lines):
    """Splits lines into (comment, code) pairs: a comment with the declaration that follows it, a
    declaration without one with an empty comment."""
    comment, code, depth = [], [], 0
    for line in lines:
        text = line.strip()
        if not code and re.match(r"//", text):
            comment.append(re.sub(r"^//+ ?", "", text))
            continue
        if not text and not code:
            if comment:
                yield comment, []
                comment = []
            continue
        if not text and depth == 0:
            continue
        code.append(line)
        bare = re.sub(r'"(\\.|[^"\\])*"|//.*', "", text)
        depth += sum(map(bare.count, "{([")) - sum(map(bare.count, "})]"))
        if depth == 0 and re.search(r"[;}:]\s*$", bare) and not bare.endswith("::"):
            yield comment, code
            comment, code = [], []
    if code:
        yield comment, code


def without_bodies(code):
    """The declaration alone: inline bodies and the export macro are left out."""
    text = "\n".join(code)
    text = re.sub(r"\bWEFT_(?:C_)?API\s+|\[\[.*?\]\]\s+", "", text)
    body = r"(?s)(.*?\)\s*(?:const|noexcept|&|\s)*)(?:\s*:[^:].*?)?\{.*\}\s*;?$"
    signature = re.match(body, text)
    if signature and "= default" not in text:
        text = signature[1].rstrip() + ";"
    indent = min((len(l) - len(l.lstrip()) for l in text.splitlines() if l.strip()), default=0)
    return "\n".join(l[indent:] for l in text.splitlines())


def marked(comment):
    text = "\n".join(comment)
    parts = re.split(r"(`+[^`]*`+)", text)
    parts[::2] = [re.sub(r"([\\*_\[\]<>#|$~{}])", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"^(\s*)([-+=]|\d+[.)])", r"\1\\\2", "".join(parts), flags=re.M)


def class_of(code):
    """Name of the class that the code defines, and the lines of its body."""
    text = re.sub(r"\bWEFT_API\s+|\[\[.*?\]\]\s+", "", "\n".join(code))
    head = re.match(r"\s*(?:template <[^\n]*>\s*)?(class|struct)\s+(\w+)[^;{(]*\{", text)
    if not head:
        return None
    return head[1], head[2], text[head.end() : text.rindex("}")].splitlines()


def described(words, code, out):
    """Adds a declaration with its comment to a text; one without joins the block before it."""
    if code and not words and out.endswith("\n```\n\n"):
        return out.removesuffix("```\n\n") + without_bodies(code) + "\n```\n\n"
    text = "```cpp\n" + without_bodies(code) + "\n```\n\n" if code else ""
    return out + text + (marked(words) + "\n\n" if words else "")


def class_section(kind, name, comment, body):
    out = f"## {name}\n\n`{kind} {name}`\n\n{marked(comment)}\n\n"
    public, nested = kind == "struct", ""
    for words, code in declarations(body):
        label = code[0].strip() if code else ""
        if label in ("public:", "private:", "protected:"):
            public = label == "public:"
        elif public and code and (inner := class_of(code)):
            nested += class_section(inner[0], f"{name}::{inner[1]}", words, inner[2])
        elif public and not label.startswith(("friend class", "friend struct")):
            out = described(words, code, out)
    return out + nested


def page(header, text):
    """The page of one header, by its name and text."""
    kept = []
    for line in text.splitlines():
        if line.startswith(("#", LICENCE, "namespace", "}  // namespace")):
            continue
        kept.append(line)
    out = f"# weft/{header}\n\n`#include <weft/{header}>`\n\n"
    for comment, code in declarations(kept):
        found = class_of(code) if code else None
        if found:
            out += class_section(found[0], found[1], comment, found[2])
        elif not code or not re.match(r"\s*(class|struct|enum class) \w+( : \w+)?;", code[0]):
            out = described(comment, code, out)
    if text.count("#include") > 3 and len(out) < 200:
        names = re.findall(r'#include "(weft/[^"]+)"', text)
        out += "Includes:\n\n" + "".join(f"- `{name}`\n" for name in names)
    return out


def headers(include):
    return sorted(str(p.relative_to(include / "weft")) for p in (include / "weft").rglob("*.h"))


def write(include, folder):
    groups = {
        "programs": [],
        "operations (weft/ops/)": [],
        "authors of extensions": [],
        "programs in C": [],
    }
    for header in headers(include):
        file = folder / (header.removesuffix(".h") + ".md")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(header, (include / "weft" / header).read_text()))
        first = header.split("/")[0] if "/" in header else ""
        group = {"ops": 1, "extend": 2, "c": 3}.get(first, 0)
        list(groups.values())[group].append(header.removesuffix(".h"))
    out = (
        "# C++ reference\n\nEach public header, with the comment of each declaration. "
        "`#include <weft/weft.h>` includes all headers for programs.\n\n"
    )
    for title, names in groups.items():
        out += f"## Headers for {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n"
        out += "\n".join(names) + "\n```\n\n"
    (folder / "index.md").write_text(out)
