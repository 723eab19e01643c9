# SPDX-License-Identifier: Apache-2.0
"""Ops by name with any `structure`: each call is computed or refused, and none ends the process."""

import os
import subprocess
import sys

ROUNDS = 240

# Runs in a separate process, whose end by a signal is a failure. Its address space is limited, so
# that sizes beyond any memory are refused, not tried.
FUZZ = f"""
import random, resource
import numpy as np
import weft

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
draw = random.Random(20)
EXTREME = [2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63), 255, 256]


def number():
    return draw.choice([draw.randint(-9, 9), draw.randint(0, 4), draw.choice(EXTREME)])


def structure_near(known):
    kind = draw.randrange(4)
    if kind == 0 or not known:
        return tuple(number() for _ in range(draw.randrange(9)))
    if kind == 1:
        return tuple(draw.choice([n, number()]) for n in known)
    if kind == 2:
        return tuple(draw.randint(0, 7) for _ in known)
    return tuple(draw.sample(known, len(known))) + tuple(number() for _ in range(draw.randrange(2)))


def operand(shape, dtype, limits, mesh):
    low, high = limits
    if dtype.is_floating_point:
        values = np.random.default_rng(1).uniform(low, high, shape).astype(np.float32)
    else:
        values = np.random.default_rng(1).integers(int(low), int(high), shape)
    made = weft.asarray(values, dtype=dtype)
    if mesh:
        made = weft.distribute(made, mesh, [weft.Shard(0)] if len(shape) else [])
    return made.requires_grad_() if dtype.is_floating_point else made


def run(op, operands, structure, values):
    try:
        results = op(*operands, structure=structure, values=list(values))
        one = results[0] if isinstance(results, tuple) else results
        if one.requires_grad and one.size < 1e6:
            weft.sum(one).backward()
        if one.size < 1e6:
            repr(one.full_tensor().detach().tolist() if one.is_sharded else one.detach().tolist())
        return 1
    except (ValueError, RuntimeError, MemoryError):
        return 0


def fuzz(world):
    draw.seed(20)
    mesh = weft.DeviceMesh(world, {{"dp": world.size}}) if world else None
    ran = tried = 0
    for op in weft.all_ops():
        for shapes, dtypes, known, values, limits in op.samples:
            operands = [operand(s, d, limits, mesh) for s, d in zip(shapes, dtypes)]
            with weft.no_grad():
                op(*(x.detach() for x in operands), structure=known, values=list(values))
            for _ in range({ROUNDS} if mesh is None else {ROUNDS} // 6):
                structure = structure_near(known)
                given = operands
                if draw.random() < 0.1:
                    given = operands[: draw.randrange(len(operands) + 1)]
                print(op.name, [x.shape for x in given], structure, flush=True)
                ran += run(op, given, structure, values)
                tried += 1
    return ran, tried


print("ran", *fuzz(None))
print("ran", *weft.run_ranks(1, fuzz)[0])
"""


def test_no_structure_of_any_op_ends_the_process():
    done = subprocess.run(
        [sys.executable, "-c", FUZZ],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    last = "\n".join(done.stdout.splitlines()[-3:])
    assert done.returncode == 0, f"{done.returncode}: {last}\n{done.stderr[-2000:]}"
    for line in [line for line in done.stdout.splitlines() if line.startswith("ran ")]:
        ran, tried = map(int, line.split()[1:])
        assert 0 < ran < tried and tried > 500
