# SPDX-License-Identifier: Apache-2.0
"""Random programs of ops on sharded tensors, against NumPy, one rank and, where installed, PyTorch.

    python tests/python/random_programs.py FIRST END [--seconds S]

checks the programs of those seeds, prints the shortest form of each that differs, and exits with 1
if any does. A program has up to three leaves and twelve ops (random_ops.py), on 1 to 8 ranks and a
mesh of one to three axes; leaves, and a third of the results, have random placements, Partial among
them. Values are compared with NumPy's and gradients with PyTorch's, or with those of one rank where
PyTorch is missing. A program ends early where weft refuses a change in place that NumPy takes; the
last line counts those."""

import argparse
import copy
import sys
import time
import warnings

import numpy as np
import numpy_library
import random_ops
import weft
import weft.torch

try:
    import torch
except ImportError:
    torch = None

MESHES = ((1,), (2,), (3,), (4,), (5,), (2, 2), (6,), (2, 3), (3, 2), (1, 3), (8,))
MESHES += ((2, 2, 2), (1, 2, 2), (2, 1, 3), (3, 1, 2))
# Parts of the errors by which weft refuses a change in place.
REFUSED = (
    "requires a gradient, expected none of what changes",
    "expected one without a Partial",
    "expected ones that it can change in place",
    "with a Partial, expected one that holds its elements",
    "recorded op changed it in place",
)


class Library:
    """A module of PyTorch's names, whose functions may be methods of its tensors, and a mesh that
    its constants are distributed over."""

    def __init__(self, module, mesh=None):
        self.module, self.mesh = module, mesh

    def __getattr__(self, name):
        if not name.endswith("_") and hasattr(self.module, name):
            return getattr(self.module, name)
        return lambda x, *arguments, **options: getattr(x, name)(*arguments, **options)

    def reduced(self, x):
        """x, replicated where it was Partial."""
        if self.mesh is None or weft.Partial() not in x.placements:
            return x
        kept = [weft.Replicate() if p == weft.Partial() else p for p in x.placements]
        return x.redistribute(kept)

    def tensor(self, values):
        if self.module is torch:
            return torch.tensor(values)
        made = weft.asarray(values)
        return made if self.mesh is None else weft.distribute(made, self.mesh, {})


class Program:
    """Leaves, steps over earlier values, placements of values, and the weight that each value has
    in the sum that is differentiated."""

    def __init__(self, seed):
        self.seed = seed
        draw = random_ops.Draw(seed)
        pick = draw.random
        self.mesh = pick.choice(MESHES)
        self.leaves, self.steps, self.placements = [], [], {}
        for _ in range(pick.randrange(1, 4)):
            ndim = pick.choice((1, 2, 2, 3))
            shape = [pick.choice((0, 1, 1, 2, 3, 4, 5, 6)) for _ in range(ndim)]
            self.leaves.append(draw.numpy.standard_normal(shape))
        values = list(self.leaves)
        for number, leaf in enumerate(values):
            self.placements[number] = draw.placements(leaf, len(self.mesh))
        for _ in range(pick.randrange(2, 13)):
            step, value = draw.step(values)
            self.steps.append(step)
            values.append(value)
            if pick.random() < 0.3:
                placements = draw.placements(value, len(self.mesh))
                self.placements[len(values) - 1] = placements
        self.weights = [draw.numpy.standard_normal(x.shape) for x in values]

    def __str__(self):
        lines = [f"seed {self.seed}, mesh {self.mesh}"]
        for number, weight in enumerate(self.weights):
            if number < len(self.leaves):
                text = f"leaf {self.leaves[number].shape}"
            else:
                step = self.steps[number - len(self.leaves)]
                text = f"{step.name} of {', '.join(f'v{i}' for i in step.operands)}"
            placements = self.placements.get(number)
            text += f" -> {placements}" if placements else ""
            lines.append(f"  v{number} = {text}" + ("" if weight.any() else ", weight 0"))
        return "\n".join(lines)


def results_of(program, library, leaves, check=None):
    """All values; `check(number, value)` after each."""
    values = []
    for number in range(len(program.weights)):
        if number < len(leaves):
            value = leaves[number]
        else:
            step = program.steps[number - len(leaves)]
            value = step.function(library, *(values[i] for i in step.operands))
        placements = program.placements.get(number)
        if placements and getattr(library, "mesh", None) is not None:
            value = value.redistribute(placements)
        if check:
            check(number, value)
        values.append(value)
    return values


def gradients(program, library, check=None):
    """The leaves' gradients of the weighted sum of all values."""
    leaves = [library.tensor(leaf).requires_grad_() for leaf in program.leaves]
    values = results_of(program, library, leaves, check)
    terms = [(x * library.tensor(w)).sum() for x, w in zip(values, program.weights) if w.any()]
    if any(term.requires_grad for term in terms):
        sum(terms[1:], terms[0]).backward()
    return [leaf.grad for leaf in leaves]


class Difference(Exception):
    """A program's value or gradient differs from the expected one."""


def compare(name, given, expected, tolerance):
    if given.shape != expected.shape or not np.allclose(given, expected, tolerance, tolerance):
        raise Difference(f"{name} is {given.tolist()}, expected {expected.tolist()}")


def whole(tensor, like):
    if tensor is None:
        return np.zeros(like.shape)
    full = tensor.detach()
    return full.full_tensor().numpy()


def run(program):
    """Raises Difference, or what weft raises."""
    library = Library(torch or weft.torch)
    expected = [np.array(x) for x in results_of(program, numpy_library, program.leaves)]
    reference = [
        np.zeros(leaf.shape) if gradient is None else gradient.numpy()
        for leaf, gradient in zip(program.leaves, gradients(program, library))
    ]

    def body(world):
        mesh = weft.DeviceMesh(world, dict(zip("abc", program.mesh)))

        def check(number, value):
            compare(f"v{number}", whole(value, expected[number]), expected[number], 1e-7)

        found = gradients(program, Library(weft.torch, mesh), check)
        for number, (gradient, right) in enumerate(zip(found, reference)):
            compare(f"gradient of v{number}", whole(gradient, right), right, 1e-6)

    weft.run_ranks(int(np.prod(program.mesh)), body)


def difference(program):
    """Returns the error in words, "" where a change in place was refused, or None."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run(program)
        return None
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        refused = isinstance(error, ValueError) and any(part in text for part in REFUSED)
        return "" if refused else text


def renumbered(program, order, leaves, other=None):
    """The program of the values `order`, `leaves` in front of them; `other` maps removed values to
    what stands in for them."""
    number = {old: new for new, old in enumerate(order)}
    number |= {old: number[new] for old, new in (other or {}).items()}
    old_steps = {n + len(program.leaves): step for n, step in enumerate(program.steps)}
    made = copy.copy(program)
    made.leaves = leaves
    made.steps = [
        random_ops.Step(step.name, [number[i] for i in step.operands], step.function)
        for step in (old_steps[old] for old in order[len(leaves) :])
    ]
    made.weights = [program.weights[old] for old in order]
    made.placements = {number[n]: p for n, p in program.placements.items() if n in order}
    return made


def without(program, number, other):
    """The program without value `number`, which `other` (a value or None) stands in for."""
    order = [n for n in range(len(program.weights)) if n != number]
    leaves = [leaf for n, leaf in enumerate(program.leaves) if n != number]
    return renumbered(program, order, leaves, {} if other is None else {number: other})


def as_leaf(program, number):
    """The program with the value of a step as a leaf."""
    value = np.array(results_of(program, numpy_library, program.leaves)[number], order="C")
    leaves = len(program.leaves)
    order = [*range(leaves), number]
    order += [n for n in range(leaves, len(program.weights)) if n != number]
    return renumbered(program, order, [*program.leaves, value])


def smaller(program):
    """Programs with one thing less."""
    used = {i for step in program.steps for i in step.operands}
    for number in reversed(range(len(program.weights))):
        if number not in used and len(program.weights) > 1:
            yield without(program, number, None)
        elif number >= len(program.leaves):
            for operand in program.steps[number - len(program.leaves)].operands:
                if program.weights[operand].shape == program.weights[number].shape:
                    yield without(program, number, operand)
            yield as_leaf(program, number)
    for number in program.placements:
        made = copy.copy(program)
        made.placements = {n: p for n, p in program.placements.items() if n != number}
        yield made
        for axis, placement in enumerate(program.placements[number]):
            if placement != weft.Replicate():
                made = copy.copy(program)
                made.placements = copy.deepcopy(program.placements)
                made.placements[number][axis] = weft.Replicate()
                yield made
    for axis in range(len(program.mesh) if len(program.mesh) > 1 else 0):
        made = copy.copy(program)
        made.mesh = program.mesh[:axis] + program.mesh[axis + 1 :]
        made.placements = {n: p[:axis] + p[axis + 1 :] for n, p in program.placements.items()}
        yield made
    for number, weight in enumerate(program.weights):
        if weight.any():
            made = copy.copy(program)
            made.weights = list(program.weights)
            made.weights[number] = np.zeros_like(weight)
            yield made


def fails(program):
    try:
        return difference(program)
    except (IndexError, TypeError):
        return None


def shortest(program, seconds=60):
    """A program that fails and of which no smaller one does, as far as the time allows."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = next((p for p in smaller(program) if time.monotonic() < end and fails(p)), None)
        if found is None:
            break
        program = found
    return program


def report(seed):
    """None, "" where weft refused a change in place, or the shortest program that differs."""
    program = Program(seed)
    if not (wrong := difference(program)):
        return wrong
    program = shortest(program)
    return f"{fails(program) or wrong}\n{program}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    stop = time.monotonic() + arguments.seconds
    checked = refused = wrong = 0
    for seed in range(arguments.first, arguments.end):
        if time.monotonic() > stop:
            break
        found = report(seed)
        checked += 1
        refused += found == ""
        if found:
            wrong += 1
            print(found, flush=True)
    print(f"{checked} programs, {wrong} differ, {refused} refused", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
