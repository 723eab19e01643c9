# SPDX-License-Identifier: Apache-2.0
"""Errors for invalid arguments: one sentence each, and never the end of the process."""

import copy
import pickle
import pydoc
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
    (lambda: weft.zeros(2**64), ValueError, "shape: it is 18446744073709551616, expected a number"),
    (lambda: weft.ones((2, BIG)), ValueError, f"shape: it is {BIG}, expected a number of 64 bits"),
    (lambda: X.reshape(BIG), ValueError, f"shape: it is {BIG}, expected a number of 64 bits"),
    (lambda: X[BIG], IndexError, f"index: it is {BIG}, expected one of the 3 elements"),
    (lambda: X[-BIG], IndexError, f"index: it is -{BIG}, expected one of the 3 elements"),
    (lambda: weft.squeeze(X, BIG), ValueError, f"axis: it is {BIG}, expected a number of 64 bits"),
    (lambda: weft.sum(X, axis=2**40), ValueError, "axis: dim is 1099511627776, expected one"),
    (lambda: X.permute(BIG), ValueError, f"permute: it is {BIG}, expected a number of 64 bits"),
    (lambda: weft.argmax(X, axis=BIG), ValueError, f"argmax: it is {BIG}, expected a number"),
    (lambda: weft.eye(BIG), TypeError, f"eye: n_rows is {BIG}, expected int of 64 bits"),
    (lambda: weft.manual_seed(-1), TypeError, "manual_seed: arguments are (-1), expected (seed:"),
    (lambda: nn.Embedding(BIG, 2), TypeError, f"Embedding: num_embeddings is {BIG}, expected int"),
    # Objects of a wrong type.
    (lambda: weft.matmul(X, "x"), TypeError, "matmul: x2 is 'x', expected Tensor"),
    (lambda: weft.Shard("x"), TypeError, "Shard: dim is 'x', expected int"),
    (lambda: nn.Linear("a", bias=[]), TypeError, "Linear: out_features is missing, expected int"),
    (lambda: nn.Linear("a", 2), TypeError, "Linear: in_features is 'a', expected int"),
    (lambda: weft.softmax(X, 0, 1), TypeError, "softmax: number of arguments by position is 3, ex"),
    (lambda: weft.softmax(X, dmi=1), TypeError, 'softmax: argument "dmi" does not exist; it takes'),
    (lambda: weft.split(X, "a"), TypeError, "split: arguments are (a Tensor, 'a'), expected (x: T"),
    (lambda: X.sum([], keepdim="x" * 50), TypeError, "sum: keepdim is a str, expected bool"),
    (lambda: weft.sum(X, axis="x"), TypeError, "axis: it is a str, expected a whole number"),
    (lambda: X.permute("a"), TypeError, "permute: it is a str, expected a whole number"),
    (lambda: X.reshape("a"), TypeError, "reshape: shape is 'a', expected tuple"),
    (lambda: weft.run_ranks("a", print), TypeError, "run_ranks: ranks is 'a', expected int"),
    (
        lambda: nn.Linear(2, 2).get_submodule(3),
        TypeError,
        "get_submodule: path is 3, expected str",
    ),
    (lambda: nn.Sequential(3), TypeError, "Sequential: it is a int, expected a Module"),
    (
        lambda: weft.clip_grad_norm_(3, 1.0),
        TypeError,
        "parameters: they are a int, expected a Module or a list of Parameters",
    ),
    (lambda: weft.StateDict({}, {"a": "x"}), TypeError, "StateDict: numbers is a dict, expected"),
    # Meshes, placements and plans.
    (on_mesh(lambda mesh: mesh[0]), TypeError, "mesh: name of an axis is 0, expected a string"),
    (on_mesh(lambda mesh: mesh["dp", 1]), TypeError, "mesh: name of an axis is 1, expected a"),
    (on_mesh(lambda mesh: mesh.size("tp")), ValueError, "tp"),
    (
        lambda: weft.run_ranks(1, lambda w: weft.DeviceMesh(w, {"dp": "x"})),
        TypeError,
        "mesh: it is a str, expected a whole number",
    ),
    (
        lambda: weft.run_ranks(1, lambda w: weft.DeviceMesh(w, 5)),
        TypeError,
        "mesh: axes are a int, expected a dict such as {'dp': 2, 'tp': 4}",
    ),
    (
        lambda: weft.run_ranks(1, lambda w: weft.DeviceMesh(w, ["dp"])),
        TypeError,
        "mesh: an axis is 'dp', expected a name and a size",
    ),
    (planned({"": "colwise"}), TypeError, "parallelize: the style of '' is a str, expected"),
    (planned({"": [3, weft.Colwise()]}), TypeError, "the style of '' is a int, expected Colwise"),
    (planned({3: weft.Colwise()}), TypeError, "parallelize: path is 3, expected a string such as"),
    (planned([1]), TypeError, "parallelize: plan is a list, expected dict"),
    (on_mesh(lambda mesh: weft.distribute(X, mesh, ["x"])), TypeError, "distribute: placements"),
    # Options of runs.
    (
        lambda: weft.run_ranks(2, print, threads_per_rank=10**9),
        ValueError,
        "run_ranks: number of threads a rank is 1000000000, expected 0 to 1024; 0 shares the cores",
    ),
    (
        lambda: weft.run_ranks(2, print, deadline=float("nan")),
        ValueError,
        "deadline: it is nan s, expected a number above 0",
    ),
    (lambda: weft.run_ranks(2, print, deadline=-1), ValueError, "deadline: it is -1 s, expected"),
    (lambda: weft.Graph("cpu"), ValueError, "graph: device is cpu, expected a GPU"),
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


def last_line_of(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode} at {lines[-1:]}: {done.stderr[-2000:]}"
    return lines[-1]


def test_objects_without_init_raise():
    assert int(last_line_of(WITHOUT_INIT).split()[1]) > 500
    with pytest.raises(TypeError, match=r"__init__ did not run.*super\(\).__init__\(\)"):
        weft.Tensor.__new__(weft.Tensor).shape


# Objects made without their __init__ as arguments and as items of them, in a separate process.
PASSED_WITHOUT_INIT = """
import collections

import weft
from weft import Shard, nn

def empty(kind):
    return kind.__new__(kind)

class Late(nn.Module):
    def __init__(self, use):
        use(self)

def refused(call, *given):
    print(len(tried), call, given and type(given[0]), flush=True)
    try:
        call(*given)
    except TypeError:
        tried.append(call)
    else:
        raise AssertionError("no TypeError")

tried = []
x = weft.ones(2, 2)
tensor, shard, module = empty(weft.Tensor), empty(Shard), empty(nn.Linear)
for wrap in (lambda o: o, lambda o: [o], lambda o: (x, o), lambda o: [1, [o]], lambda o: {"a": o}):
    refused(weft.softmax, wrap(tensor))
for call in (weft.add, weft.matmul, weft.allclose, weft.stack, weft.concat):
    refused(call, [x, tensor])
for call in (weft.stack, weft.concat, weft.vstack):
    refused(call, (y for y in [x, tensor]))
refused(weft.stack, collections.deque([x, tensor]))
refused(weft.tensor, [[[tensor]]])
refused(weft.asarray, [[[[tensor]]]])
refused(lambda: x + tensor)
refused(lambda: x[tensor])
refused(lambda: x[0, tensor])
refused(lambda: x.add_(tensor))
refused(lambda: nn.Linear(2, 2)(tensor))
refused(lambda: nn.Sequential(module))
refused(lambda: nn.ModuleList([nn.ReLU(), module]))
refused(lambda: weft.optim.SGD((p for p in [empty(weft.Parameter)]), lr=0.1))
refused(lambda: setattr(nn.Sequential(), "a", module))
refused(Late, lambda self: setattr(self, "a", nn.ReLU()))
refused(Late, lambda self: nn.Sequential(self))
refused(Late, lambda self: self(x))

def on_mesh(world):
    mesh = weft.DeviceMesh(world, {"a": 1})
    refused(lambda: weft.distribute(x, mesh, [shard]))
    refused(lambda: weft.distribute(x, mesh, {"a": shard}))
    refused(lambda: weft.distribute(x, empty(weft.DeviceMesh), [Shard(0)]))
    refused(lambda: weft.fully_shard((m for m in [module]), mesh))

weft.run_ranks(1, on_mesh)
print("refused", len(tried))
"""


def test_objects_without_init_are_refused_as_arguments():
    assert last_line_of(PASSED_WITHOUT_INIT) == "refused 32"


@pytest.mark.parametrize("function", [weft.softmax, weft.split, weft.Tensor.sum, weft.run_ranks])
def test_help_shows_no_types_of_the_binder(function):
    text = pydoc.plain(pydoc.render_doc(function))
    assert not any(mark in text for mark in ("pybind11", "typing.", "weft._weft.", "SupportsInt"))
    assert f"\n    {function.__name__}(" in text


def test_functions_are_copied_and_pickled_by_name():
    assert copy.deepcopy(weft.softmax) is weft.softmax
    assert pickle.loads(pickle.dumps(weft.softmax)) is weft.softmax
    assert repr(weft.softmax) == "<function weft.softmax>"
    assert repr(weft.Tensor.sum) == "<function weft.Tensor.sum>"


def test_only_methods_bind():
    class Holder:
        function = weft.relu
        method = weft.Tensor.sum

    assert Holder().function is weft.relu
    assert weft.ones(2).sum.__self__ is not None


def test_an_argument_has_one_word():
    with pytest.raises(ValueError, match="sum: argument axis is given as dim too, expected one"):
        weft.sum(X, axis=0, dim=0)
