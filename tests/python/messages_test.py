# SPDX-License-Identifier: Apache-2.0
"""Errors for invalid arguments: one sentence each, and never the end of the process."""

import subprocess
import sys

import pytest
import weft
from weft import nn

BIG = 2**70
X = weft.ones((3,))


def on_mesh(body):
    """Calls body(mesh) on a mesh of one rank."""
    return lambda: weft.run_ranks(1, lambda w: body(weft.DeviceMesh(w, {"dp": 1})))


def planned(plan):
    return on_mesh(lambda mesh: weft.parallelize(nn.Linear(2, 2), mesh["dp"], plan))


SENTENCES = [
    # Numbers out of range.
    (lambda: weft.zeros(2**64), ValueError, "shape: 18446744073709551616 is beyond 64 bits"),
    (lambda: weft.ones((2, BIG)), ValueError, f"shape: {BIG} is beyond 64 bits"),
    (lambda: X.reshape(BIG), ValueError, f"shape: {BIG} is beyond 64 bits"),
    (lambda: X[BIG], IndexError, f"index: {BIG} is out of dim 0 of [3]"),
    (lambda: X[-BIG], IndexError, f"index: -{BIG} is out of dim 0 of [3]"),
    (lambda: weft.squeeze(X, BIG), ValueError, f"axis: {BIG} is beyond 64 bits"),
    (lambda: weft.sum(X, axis=2**40), ValueError, "axis: dim 1099511627776 is none"),
    (lambda: X.permute(BIG), ValueError, f"permute: {BIG} is beyond 64 bits"),
    (lambda: weft.argmax(X, axis=BIG), ValueError, f"argmax: {BIG} is beyond 64 bits"),
    (lambda: weft.eye(BIG), TypeError, "eye: it takes (n_rows: int, n_cols: int | None = None, "),
    (lambda: weft.manual_seed(-1), TypeError, "manual_seed: it takes (seed: int), not (-1)"),
    (
        lambda: nn.Embedding(BIG, 2),
        TypeError,
        "Embedding: it takes (num_embeddings: int, embedding_dim: int, std: float = 1.0, device",
    ),
    # Objects of a wrong type.
    (
        lambda: weft.matmul(X, "x"),
        TypeError,
        "matmul: it takes (x1: Tensor, x2: Tensor), not (Tensor, 'x')",
    ),
    (lambda: weft.Shard("x"), TypeError, "Shard: it takes (dim: int = 0), not ('x')"),
    (lambda: nn.Linear("a", bias=[]), TypeError, "not ('a', bias=list)"),
    (lambda: X.sum([], keepdim="x" * 50), TypeError, "not (Tensor, list, keepdim=str)"),
    (lambda: weft.sum(X, axis="x"), TypeError, "axis: a str is given, which is no whole number"),
    (lambda: X.permute("a"), TypeError, "permute: a str is given, which is no whole number"),
    (lambda: X.reshape("a"), TypeError, "a shape is ints, or a sequence of them"),
    (lambda: weft.run_ranks("a", print), TypeError, "run_ranks: it takes (ranks: int, body: "),
    (
        lambda: nn.Linear(2, 2).get_submodule(3),
        TypeError,
        "get_submodule: it takes (Module, path: str), not (3)",
    ),
    (lambda: nn.Sequential(3), TypeError, "Sequential: a int is given, which is no Module"),
    (
        lambda: weft.clip_grad_norm_(3, 1.0),
        TypeError,
        "parameters: a int is neither a Module nor a list of Parameters",
    ),
    (lambda: weft.StateDict({}, {"a": "x"}), TypeError, "(tensors: Mapping[str, Tensor] ="),
    # Meshes, placements and plans.
    (on_mesh(lambda mesh: mesh[0]), TypeError, "0 is given for the name of an axis of mesh(dp=1)"),
    (on_mesh(lambda mesh: mesh["dp", 1]), TypeError, "mesh: 1 is given for the name of an axis"),
    (on_mesh(lambda mesh: mesh.size("tp")), ValueError, "tp"),
    (
        lambda: weft.run_ranks(1, lambda w: weft.DeviceMesh(w, {"dp": "x"})),
        TypeError,
        "mesh: a str is given, which is no whole number",
    ),
    (
        lambda: weft.run_ranks(1, lambda w: weft.DeviceMesh(w, 5)),
        TypeError,
        "mesh: a int is given for axes; give {'dp': 2, 'tp': 4}",
    ),
    (
        lambda: weft.run_ranks(1, lambda w: weft.DeviceMesh(w, ["dp"])),
        TypeError,
        "mesh: 'dp' is no axis; an axis is a name and a size",
    ),
    (planned({"": "colwise"}), TypeError, "parallelize: the style of '' is a str, none of Colwise"),
    (planned({"": [3, weft.Colwise()]}), TypeError, "the style of '' is a int, none of"),
    (planned({3: weft.Colwise()}), TypeError, "parallelize: 3 is given for a path; it is a string"),
    (planned([1]), TypeError, "it takes (module: Module, mesh: DeviceMesh, plan: dict)"),
    (on_mesh(lambda mesh: weft.distribute(X, mesh, ["x"])), TypeError, "not (Tensor, DeviceMesh,"),
    # Options of runs.
    (
        lambda: weft.run_ranks(2, print, threads_per_rank=10**9),
        ValueError,
        "run_ranks: 1000000000 threads a rank; 0 shares the cores, and 1024 are the most",
    ),
    (
        lambda: weft.run_ranks(2, print, deadline=float("nan")),
        ValueError,
        "deadline: nan is no number of seconds above 0",
    ),
    (lambda: weft.run_ranks(2, print, deadline=-1), ValueError, "deadline: -1 is no number of"),
    (lambda: weft.Graph("cpu"), ValueError, "graph: a graph is of work on a GPU, not on cpu"),
]


@pytest.mark.parametrize("call, kind, sentence", SENTENCES, ids=[s[2][:40] for s in SENTENCES])
def test_it_is_one_sentence(call, kind, sentence):
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert sentence in text and "\n" not in text and not text.endswith(".")
    assert "pybind11" not in text and "weft._weft" not in text


def test_a_deadline_may_have_no_end():
    assert weft.run_ranks(2, lambda world: world.barrier(), deadline=float("inf")) == [None] * 2
    assert weft.run_ranks(2, lambda world: world.barrier(), deadline=1e300) == [None] * 2


def test_what_is_right_is_not_reworded():
    with pytest.raises(TypeError, match="^mine$"):
        weft.run_ranks(1, lambda world: (_ for _ in ()).throw(TypeError("mine")))
    assert X.__add__("x") is NotImplemented


# Each public member of an object made without its __init__, in a separate process.
WITHOUT_INIT = """
import weft
from weft import _weft

tried = 0
for name in dir(_weft):
    kind = getattr(_weft, name)
    if not isinstance(kind, type) or issubclass(kind, (BaseException, tuple)):
        continue
    made = kind.__new__(kind)
    for member in sorted(set(dir(kind)) - set(dir(object)) | {"__repr__"}):
        for arguments in ((), (1,)):
            tried += 1
            print(name, member, flush=True)
            try:
                found = getattr(made, member)
                if callable(found):
                    found(*arguments)
            except Exception as error:
                assert type(error) is not SystemError, error
print("tried", tried)
"""


def test_objects_without_init_raise():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_INIT], capture_output=True, text=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode} at {lines[-1:]}: {done.stderr[-2000:]}"
    assert int(lines[-1].split()[1]) > 500
    with pytest.raises(TypeError, match=r"used whose __init__ did not run.*super\(\).__init__\(\)"):
        weft.Tensor.__new__(weft.Tensor).shape
