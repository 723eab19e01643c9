# SPDX-License-Identifier: Apache-2.0
"""Writes the Python reference: each public name of each module, with signature and docstring."""

import importlib
import inspect
import re

import weft

MODULES = [
    "weft", "weft.nn", "weft.nn.functional", "weft.nn.init", "weft.nn.utils", "weft.optim",
    "weft.optim.lr_scheduler", "weft.linalg", "weft.ops", "weft.torch", "weft.testing",
    "weft.training", "weft.autograd", "weft.fft", "weft.pipeline",
]  # fmt: skip
SIGNATURE = re.compile(r"^\w+(\(.*\).*)$")


def module_of(path):
    first, *rest = path.split(".")
    found = importlib.import_module(first)
    for name in rest:
        found = getattr(found, name)
    return found


def public_names(module):
    """Names of a module that users call: no private ones, no modules, nothing of other packages."""
    names = []
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        foreign = callable(value) and home and not home.startswith(("weft", "builtins", "pybind"))
        if not (name.startswith("_") or inspect.ismodule(value) or foreign):
            names.append(name)
    return sorted(names)


def escaped(text):
    """Docstring text as Markdown: blocks that are indented become code, marks mean themselves."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if not paragraph.strip():
            continue
        if paragraph.startswith("    "):
            paragraphs.append("```python\n" + inspect.cleandoc(paragraph) + "\n```")
            continue
        # One of several signatures of a function.
        paragraph = re.sub(r"^\d+\. (\w+)\(self: \w+,? ?(.*)$", r"`\1(\2`", paragraph)
        paragraph = re.sub(r"^\d+\. (\w+\(.*)$", r"`\1`", paragraph)
        paragraph = re.sub(r"^Rule: (.*)$", r"Rule: `\1`", paragraph)
        parts = re.split(r"(`+[^`]*`+)", paragraph)
        plain = [re.sub(r"([\\*_\[\]<>#|$~{}`])", r"\\\1", part) for part in parts[::2]]
        parts[::2] = plain
        joined = "".join(parts)
        joined = re.sub(r"^(\s*)([-+=])", r"\1\\\2", joined, flags=re.M)
        paragraphs.append(re.sub(r"^(\s*\d+)([.)])", r"\1\\\2", joined, flags=re.M))
    return "\n\n".join(paragraphs)


def described(value, name):
    """Signature (after the name) and text of a function, class or property."""
    text = inspect.getdoc(value) or ""
    first, _, rest = text.partition("\n")
    match = SIGNATURE.match(first)
    if rest.lstrip().startswith("Overloaded function."):
        return "(...)", rest.lstrip().removeprefix("Overloaded function.")
    if match:
        return re.sub(r"\bself: \w+(, )?", "", match[1]), rest
    if inspect.isclass(value):
        made = described(value.__init__, name)
        made_text = "" if "See help(type" in made[1] or made[1] == text else made[1]
        text += "\n\n" + made_text.strip() if made_text else ""
        return made[0].removesuffix(" -> None"), text
    try:
        return re.sub(r"\bself(, )?", "", str(inspect.signature(value))), text
    except (TypeError, ValueError):
        return "(...)" if callable(value) else "", text


def directive(kind, name, signature, body, depth, option=""):
    fence = ":" * (8 - depth)
    return f"{fence}{{py:{kind}}} {name}{signature}\n{option}\n{body}\n{fence}\n\n"


def members(cls, path):
    out = ""
    for name in sorted(n for n in vars(cls) if not n.startswith("_")):
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property) or not callable(getattr(cls, name, None)):
            text = escaped(inspect.getdoc(value) or "")
            out += directive("attribute", f"{path}.{name}", "", text, 2)
        else:
            signature, text = described(getattr(cls, name), name)
            out += directive("method", f"{path}.{name}", signature, escaped(text), 2)
    return out


def entry(module, path, name):
    value = getattr(module, name)
    full = f"{path}.{name}"
    if inspect.isclass(value):
        own = getattr(value, "__name__", name)
        if own != name and hasattr(module, own):
            text = f"The same class as {{py:class}}`{path}.{own}`."
            return directive("class", full, "", text, 1)
        if path != "weft" and getattr(weft, name, None) is value:
            # One description is indexed, so that each annotation has one target.
            text = f"The class {{py:class}}`weft.{name}`."
            return directive("class", full, "", text, 1, ":no-index:\n")
        signature, text = described(value, name)
        return directive("class", full, signature, escaped(text) + "\n\n" + members(value, full), 1)
    if callable(value):
        signature, text = described(value, name)
        return directive("function", full, signature, escaped(text), 1)
    text = f"A value of type `{type(value).__name__}`: `{value!r}`."
    # weft.bool, a dtype, is not the bool of annotations.
    option = ":no-index:\n" if path == "weft.torch" or name == "bool" else ""
    return directive("data", full, "", text.replace("\n", " "), 1, option)


def groups(path, module):
    """(title, names) of the pages of a module."""
    names = public_names(module)
    if path != "weft":
        return [(path, names)]
    classes = [n for n in names if inspect.isclass(getattr(module, n))]
    others = [n for n in names if n not in classes and not callable(getattr(module, n))]
    functions = [n for n in names if n not in classes and n not in others]
    return [
        ("weft.Tensor", ["DTensor", "Tensor"]),
        ("weft: classes", [n for n in classes if n not in ("DTensor", "Tensor")]),
        ("weft: functions a to i", [n for n in functions if n.lower() < "j"]),
        ("weft: functions j to z", [n for n in functions if n.lower() >= "j"]),
        ("weft: dtypes and constants", others),
    ]


def pages():
    """(file, title, text) of each page."""
    for path in MODULES:
        module = module_of(path)
        for title, names in groups(path, module):
            text = f"# {title}\n\n"
            if title == path:
                text += escaped(inspect.getdoc(module) or "") + "\n\n"
            text += "".join(entry(module, path, name) for name in names)
            yield re.sub(r"\W+", "_", title.lower()), title, text


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    toc = ""
    for file, _, text in pages():
        (folder / f"{file}.md").write_text(text)
        toc += file + "\n"
    (folder / "index.md").write_text(
        "# Python reference\n\nEach public name of the package `weft`, with its signature and "
        "docstring. The page of [ops](../ops.md) has the sharding rule of each op.\n\n"
        "```{toctree}\n:maxdepth: 1\n\n" + toc + "```\n"
    )
