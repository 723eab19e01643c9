# SPDX-License-Identifier: Apache-2.0
"""weft in a program of mpi4py: one half of the job solves least squares, the other works by MPI.

    mpirun -n 4 python examples/mpi_halves.py
"""

import numpy as np
from mpi4py import MPI

import weft

job = MPI.COMM_WORLD
solves = job.rank < (job.size + 1) // 2
half = job.Split(0 if solves else 1, job.rank)

x = None
if solves:
    world = weft.connect(half)  # the ranks of this half, in MPI's order
    mesh = weft.DeviceMesh(world, {"rows": world.size})
    random = np.random.default_rng(world.rank)  # each rank has other rows
    mine = random.normal(size=(50 + 10 * world.rank, 3))
    a = weft.from_local(weft.from_numpy(mine), mesh, [weft.Shard(0)])
    b = weft.from_local(weft.from_numpy(mine @ [[1.0], [2.0], [3.0]]), mesh, [weft.Shard(0)])
    # The normal equations are small: 3 x 3 and 3 x 1 numbers are summed over the ranks.
    x = np.linalg.solve((a.T @ a).full_tensor().numpy(), (a.T @ b).full_tensor().numpy()).ravel()
else:
    own = sum(4 / (1 + ((i + 0.5) / 1000) ** 2) / 1000 for i in range(half.rank, 1000, half.size))
    pi = half.allreduce(own)

x = job.bcast(x, root=0)
assert np.allclose(x, [1, 2, 3])
if job.rank == 0:
    print(f"{world.size} of {job.size} processes, x = {x.round(3)}")
