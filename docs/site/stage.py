# SPDX-License-Identifier: Apache-2.0
"""Copies the pages of docs/, the README of each folder and the files that they link to into a
source folder for Sphinx, at the same relative paths, so that one link works in the repository and
in the site; then adds the generated reference: stage.py ROOT TARGET."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import plots  # noqa: E402

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
LEFT_OUT = ("tests/", "README.md")


def pages(root):
    """The Markdown files of the site, relative to the root."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(p for p in listed.stdout.splitlines() if not p.startswith(LEFT_OUT))


def prose(text):
    """The text without fenced blocks and code in backquotes, in which nothing is a link."""
    text = re.sub(r"^(```+)[^`\n]*\n.*?^\1$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "code", text)


def links(text):
    """Relative targets of a page's links, with their fragments."""
    found = [target for _, _, target in LINK.findall(prose(text))]
    return [t for t in found if not re.match(r"[a-z]+:|#", t)]


TABLE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.M | re.S)


def listed(root, names):
    """The pages that the tables of contents of these pages name."""
    found = []
    for name in names:
        for entries in TABLE.findall((root / name).read_text()):
            lines = [line for line in entries.splitlines() if line and not line.startswith(":")]
            found += [os.path.normpath(f"{os.path.dirname(name)}/{line}") + ".md" for line in lines]
    return found


def with_more(text, page, more):
    """The page, whose last table of contents names more pages."""
    names = [os.path.relpath(p, os.path.dirname(page)).removesuffix(".md") for p in more]
    *_, last = TABLE.finditer(text)
    return text[: last.end() - 3] + "".join(n + "\n" for n in names) + text[last.end() - 3 :]


def additions(root, names):
    """Pages that no table names, by the page whose table gets them: READMEs of folders are design,
    others guides."""
    left = [p for p in names if p not in listed(root, names) and p != "docs/index.md"]
    readmes = [p for p in left if p.endswith("/README.md")]
    return {"docs/design.md": readmes, "docs/guides/index.md": sorted(set(left) - set(readmes))}


def stage(root, target):
    root, target = pathlib.Path(root).resolve(), pathlib.Path(target)
    more = additions(root, pages(root))
    for page in pages(root):
        folder = (root / page).parent
        text = (root / page).read_text()
        for link in set(links(text)):
            file = (folder / link.split("#")[0]).resolve()
            if file.is_dir() or file == root / "README.md":
                # The site has no pages for these: the words stay.
                text = re.sub(rf"\[([^\]]*)\]\({re.escape(link)}\)", r"\1", text)
            elif file.suffix != ".md" and file.exists():
                copy = target / file.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        if more.get(page):
            text = with_more(text, page, more[page])
        if page == "benchmarks/README.md":
            text = plots.with_plots(text, target / "benchmarks/plots")
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(text)


if __name__ == "__main__":
    import cpp_reference
    import ops_page
    import python_reference

    root, target = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(target, ignore_errors=True)
    stage(root, target)
    reference = target / "docs/reference"
    cpp_reference.write(root / "include", reference / "cpp")
    python_reference.write(reference / "python")
    (reference / "ops.md").write_text(ops_page.page())
