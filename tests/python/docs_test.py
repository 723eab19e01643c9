# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/: links, the table of contents, Python programs, flags of commands, pictures,
and the reference that is made from the package, the headers and the ops."""

import contextlib
import inspect
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import weft

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))

import cpp_reference  # noqa: E402
import ops_page  # noqa: E402
import plots  # noqa: E402
import python_reference  # noqa: E402
import stage  # noqa: E402

PAGES = stage.pages(ROOT)
# These pages have tests of their own, or show parts of programs.
NOT_RUN = {"docs/recipes.md", "docs/from-pytorch.md", "docs/models.md", "docs/array-api.md"}
RUN = [p for p in PAGES if p.startswith("docs/") and p not in NOT_RUN]
GENERATED = ("docs/reference/",)
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.M | re.S)


def text_of(page):
    return (ROOT / page).read_text()


def target_of(page, link):
    return os.path.normpath(os.path.join(os.path.dirname(page), link))


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_to_files(page):
    for link in stage.links(text_of(page)):
        target = target_of(page, link.split("#")[0])
        if not target.startswith(GENERATED):
            assert (ROOT / target).exists(), link


def slug(heading):
    """The fragment that GitHub and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_fragments_of_links_name_headings():
    for page in PAGES:
        for link in stage.links(text_of(page)):
            file, _, fragment = link.partition("#")
            if fragment and not target_of(page, file).startswith(GENERATED):
                text = text_of(target_of(page, file)) if file else text_of(page)
                assert fragment in map(slug, re.findall(r"^#+ (.*)$", text, re.M)), (page, link)


def test_every_page_is_in_one_table_of_contents(tmp_path):
    stage.stage(ROOT, tmp_path)
    found = [p for p in stage.listed(tmp_path, PAGES) if not p.startswith(GENERATED)]
    assert sorted([*found, "docs/index.md"]) == sorted(PAGES)


def test_benchmarks_are_drawn_from_their_tables(tmp_path):
    table = "| case | weft [8] | recorded | PyTorch [8] |\n|---|---|---|---|\n"
    text = plots.with_plots(table + "| add | 0.11 (0.12) | 0.13 | 9.5 |\n", tmp_path / "plots")
    assert "](plots/plot0.svg)\n\n| case" in text
    picture = (tmp_path / "plots/plot0.svg").read_text()
    assert picture.count("<rect") == 3 and ">0.11<" in picture and ">9.5<" in picture
    plots.with_plots(text_of("benchmarks/README.md"), tmp_path / "all")
    assert len(list((tmp_path / "all").iterdir())) >= len(plots.TABLES)


def test_every_page_is_two_clicks_from_the_front_page(tmp_path):
    stage.stage(ROOT, tmp_path)

    def links(page):
        if not (tmp_path / page).exists():
            return set()
        text = (tmp_path / page).read_text()
        targets = {target_of(page, link.split("#")[0]) for link in stage.links(text)}
        return targets | set(stage.listed(tmp_path, [page]))

    first = links("docs/index.md")
    second = {page for found in first for page in links(found)}
    assert set(PAGES) - {"docs/index.md"} <= first | second


@pytest.mark.parametrize("page", [p for p in RUN if "```python" in text_of(p)])
def test_programs_of_a_page_run_and_print_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for program, expected in BLOCK.findall(text_of(page)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, page, "exec"), names)
        if expected:
            assert printed.getvalue() == expected


CPP_BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.M | re.S)
#: What the snippets of pages have been given.
CPP_GIVEN = """
struct Given {
  DeviceMesh mesh;
  Communicator world;
  TransformerConfig config;
  TransformerModel& model;
  Optimizer& optimizer;
  Tensor ids, targets, batch;
  std::shared_ptr<const Dataset> data, held_out;
};
"""


def cpp_program():
    """All C++ snippets of pages in one file: programs and classes in a namespace each, others as
    the body of a function. Those with <mpi.h> are compiled as examples."""
    parts, headers = [], {"iostream"}
    names = re.findall(r"[&>\w] ([\w, ]+);$", CPP_GIVEN.replace("};", ""), re.M)
    given = [name.strip() for line in names for name in line.split(",")]
    used = "".join(f"[[maybe_unused]] auto& {name} = given.{name};\n" for name in given)
    for page in PAGES:
        for number, block in enumerate(CPP_BLOCK.findall(text_of(page))):
            if "MPI_" in block:
                continue
            headers |= set(re.findall(r"^#include <(\w+)>$", block, re.M))
            code = re.sub(r"^#include .*\n", "", block, flags=re.M)
            code = re.sub(r"^using namespace weft;\n", "", code, flags=re.M)
            is_whole = re.search(r"^(int main|class |struct |static )", code, re.M)
            code = code.replace("int main(", "void program(")
            if not is_whole:  # what the snippet declares hides what is given
                code = f"void run(Given& given) {{\n{used}{{\n{code}}}}}\n"
            parts.append(f"namespace n{len(parts)} {{\n#line 1 \"{page}:{number}\"\n{code}}}\n")
    includes = "".join(f"#include <{name}>\n" for name in sorted(headers))
    start = f'{includes}#include "weft/weft.h"\nusing namespace weft;\n{CPP_GIVEN}'
    return start + "".join(parts), len(parts)


def test_cpp_snippets_compile():
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("there is no C++ compiler")
    program, count = cpp_program()
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", "-x", "c++", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert count > 5


@pytest.mark.parametrize("language", ["c", "fortran"])
def test_snippets_of_other_languages_compile(language, tmp_path):
    compiler = shutil.which({"c": "cc", "fortran": "gfortran"}[language])
    if not compiler:
        pytest.skip(f"there is no compiler for {language}")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", "".join(map(text_of, PAGES)), re.M | re.S)
    given = "#include <stddef.h>\n#include <weft.h>\nvoid f(weft_mesh mesh, weft_tensor x) {\n"
    given += "weft_tensor w1 = {0}, b1 = {0}, hidden = {0};\n"
    for block in blocks:
        if language == "fortran":
            block = f"program p\n{block}end program\n"
        elif "int main" not in block:
            block = f"{given}{block}}}\n"
        source = tmp_path / ("p.f90" if language == "fortran" else "p.c")
        source.write_text(block)
        module = [ROOT / "include/weft/fortran/weft.f90"] if language == "fortran" else []
        command = [compiler, f"-I{ROOT}/include", "-Wall", "-fsyntax-only", *module, source]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert blocks


def test_flags_of_commands_exist():
    program = os.environ.get("WEFT_PROGRAM", "weft")
    helps = {}
    used = set()
    for page in RUN + ["README.md", "SECURITY.md"]:
        for line in re.findall(r"weft (?:[a-z]+)(?: [^`\n]*)?", text_of(page).replace("\\\n", "")):
            # mpirun and others have flags of their own before the program.
            command, *words = line.split("#")[0].split()[1:]
            flags = [w.split("=")[0].rstrip(".,:;)") for w in words if re.match(r"--\w", w)]
            used |= {(command, flag) for flag in flags}
    commands = {"train", "estimate", "ckpt", "sample", "tokenize", "trace", "run", "report"}
    for command, flag in sorted(u for u in used if u[0] in commands - {"run", "ckpt"}):
        if command not in helps:
            done = subprocess.run([program, command, "--help"], capture_output=True, text=True)
            helps[command] = done.stdout
        assert re.search(rf"{flag}\b", helps[command]), (command, flag)
    assert len(used) > 20


def test_pictures_are_what_weft_draws(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "docs/pictures/draw.py", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # The predicted time depends on the machine.
    still = lambda file: re.sub(r"[\d.]+ .?s\b", "TIME", file.read_text())
    drawn = sorted(tmp_path.glob("*.svg"))
    assert [f.name for f in drawn] == sorted(f.name for f in ROOT.glob("docs/pictures/*.svg"))
    for file in drawn:
        assert still(file) == still(ROOT / "docs/pictures" / file.name), file.name


@pytest.mark.parametrize("path", python_reference.MODULES)
def test_every_public_python_name_is_documented(path):
    module = python_reference.module_of(path)
    missing = []
    for name in python_reference.public_names(module):
        value = getattr(module, name)
        # A class does not inherit its sentence; what it overrides does.
        text = value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)
        if callable(value) and not (text or "").strip():
            missing.append(name)
        for member in vars(value) if inspect.isclass(value) else ():
            is_public = member[0] != "_" and member != "forward"  # the class describes that
            of_class = getattr(value, member)
            if is_public and callable(of_class) and not inspect.getdoc(of_class):
                missing.append(f"{name}.{member}")
    assert not missing


def test_the_reference_has_every_module():
    public = {"weft"}
    for found in list(sys.modules):
        is_public = found.startswith("weft.") and "._" not in found
        if is_public and found.count(".") == 1:
            public.add(found)
    # These are weft.nn.functional and weft.nn.init, by other names.
    assert public - {"weft.functional", "weft.init"} <= set(python_reference.MODULES)


def test_the_reference_has_every_public_name():
    pages = "".join(text for _, _, text in python_reference.pages())
    described = set(re.findall(r"^:+\{py:\w+\} ([\w.]+)", pages, re.M))
    for path in python_reference.MODULES:
        module = python_reference.module_of(path)
        names = {f"{path}.{name}" for name in python_reference.public_names(module)}
        assert names <= described, sorted(names - described)[:5]


def test_the_reference_has_every_header_and_public_declaration():
    include = ROOT / "include"
    for header in cpp_reference.headers(include):
        text = (include / "weft" / header).read_text()
        page = cpp_reference.page(header, text)
        names = re.findall(r"^(?:class|struct)(?: WEFT_API)? (\w+)[^;{(]*\{", text, re.M)
        names += re.findall(r"^WEFT_API [^\n]*?(\w+)\(", text, re.M)
        for name in names:
            assert re.search(rf"\b{name}\b", page), (header, name)
        # Each comment is there, but for those of what is private.
        assert "private:" not in page, header


def named_dims(rule, shapes):
    """The factors of each operand's dims, "...1" the last of the dims that "..." stands for; None
    where dims are merged, fetched, or have another number."""
    left = rule.split("->")[0]
    if re.search(r"[~(]", left):
        return None
    named = []
    for operand, shape in zip(left.split(","), shapes):
        names = [f.strip("[]").split(":")[0] for f in ops_page.factors(operand)]
        leading = len(shape) - len(names) + 1
        if "..." in names:
            names = [f"...{leading - i}" for i in range(leading)] + names[1:]
        named.append(names)
    return named if [len(n) for n in named] == [len(s) for s in shapes] else None


MOVED = ("gathered", "exchanged")
# Linear in an operand whose cut dim is written: parts are terms of a sum, which moves nothing.
SUMS = ("add_slices_into", "add_along_dim_into")


def found(op, named, factor, mesh):
    """The result of an op whose operands are cut along a factor wherever they have it."""
    shapes, dtypes, structure, values, _ = op.samples[0]
    operands = []
    for shape, dtype, names in zip(shapes, dtypes, named):
        # A dim of size 1 that is broadcast has no cut.
        at = names.index(factor) if factor in names else -1
        cut = at >= 0 and shape[at] > 1
        placements = [weft.Shard(at) if cut else weft.Replicate()]
        operands.append(weft.distribute(weft.ones(shape).to(dtype), mesh, placements))
    try:
        with weft.traffic("free_only"):
            results = op(*operands, structure=structure, values=values)
    except ValueError as error:
        refused = "traffic policy" in str(error) or "change in place" in str(error)
        assert refused, (op.name, factor, str(error))
        return "moves"
    results = results if isinstance(results, tuple) else (results,)
    kinds = {type(r.placements[0]).__name__ for r in results if isinstance(r, weft.Tensor)}
    # An op without results changes its operands, which stay cut.
    return "partial" if kinds == {"Partial"} else "stays"


def test_the_table_of_ops_says_what_the_engine_does():
    asked = [0]

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        wrong = []
        for op in weft.all_ops():
            facts = ops_page.parsed(op)
            named = named_dims(facts["rule"], op.samples[0][0]) if op.samples else None
            sizes = zip(sum(named or [], []), sum(map(list, op.samples[0][0]), []) if named else [])
            # A dim of size 1 has no parts.
            for factor in {f for f, size in sizes if size > 1}:
                asked[0] += 1
                stated = factor if factor[0] != "." else "..."
                (kind,) = [k for k in ops_page.KINDS if stated in facts[k]]
                expected = "moves" if kind in MOVED else kind
                if kind == "gathered" and op.name in SUMS:
                    expected = "partial"
                if found(op, named, factor, mesh) != expected:
                    wrong.append((op.name, op.rule, factor, kind))
        return wrong

    assert not weft.run_ranks(2, body)[0]
    assert asked[0] > 300


def test_the_site_builds():
    if not (ROOT / "build/docs-venv/bin/sphinx-build").exists():
        pytest.skip("there is no Sphinx; scripts/docs installs it")
    done = subprocess.run(
        [ROOT / "scripts/docs", "--package", os.path.dirname(os.path.dirname(weft.__file__))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
