# SPDX-License-Identifier: Apache-2.0
"""k-means, PCA, products, QR, statistics and FFT of a tall matrix that is cut by rows, in weft and
in HeAT (`pip install heat`), which needs mpi4py.

    OMP_NUM_THREADS=1 mpirun -n 4 python next_to_heat.py --library heat [--rows 50000]
    OMP_NUM_THREADS=1 mpirun -n 4 python next_to_heat.py --library weft [--rows 50000]

Each case is one JSON line: the median of `--rounds` times of the slowest process, after one that
does not count."""

import argparse
import json
import statistics
import time

COLUMNS, CLUSTERS, STEPS, PARTS = 32, 8, 10, 4


def weft_cases(rows):
    import weft
    import weft.torch

    world = weft.connect()
    mesh = weft.DeviceMesh(world, {"p": world.size})
    x = weft.randn((rows, COLUMNS), mesh=mesh, placements=[weft.Shard(0)])
    w = weft.randn((COLUMNS, COLUMNS), mesh=mesh, placements=[weft.Replicate()])
    z = weft.complex(x, x)

    def k_means():
        centres = x[:CLUSTERS].redistribute([weft.Replicate()])
        for _ in range(STEPS):
            apart = weft.sum(centres * centres, axis=1) - 2 * (x @ centres.T)
            chosen = weft.functional.one_hot(weft.argmin(apart, axis=1), CLUSTERS).to(x.dtype)
            counts = weft.clip(weft.sum(chosen, axis=0), 1)
            centres = (chosen.T @ x) / counts[:, None]
        return centres.full_tensor()

    def pca():
        u, s, vh = weft.linalg.svd(x - weft.mean(x, axis=0), full_matrices=False)
        return (u[:, :PARTS] * s[:PARTS]).local(), vh

    def moments():
        functions = weft.mean, weft.torch.amin, weft.torch.amax
        made = [weft.var(x, axis=0, correction=0), *(f(x, axis=0) for f in functions)]
        return [t.full_tensor() for t in made]

    cases = {
        "k-means": k_means,
        "PCA": pca,
        "x.T @ x": lambda: (x.T @ x).full_tensor(),
        "x @ w": lambda: (x @ w).local(),
        "QR": lambda: [t.local() for t in weft.linalg.qr(x)],
        "mean, var, min, max": moments,
        "FFT of columns, which are cut": lambda: weft.fft.fft(z, axis=0).local(),
        "FFT of rows": lambda: weft.fft.fft(z, axis=1).local(),
    }

    def greatest(seconds):
        own = weft.asarray([seconds], dtype=weft.float64)
        return weft.from_local(own, mesh, [weft.Partial("max")], shape=(1,)).full_tensor().item()

    return cases, world.barrier, greatest, world.rank


def heat_cases(rows):
    import heat as ht
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    x = ht.random.randn(rows, COLUMNS, split=0)
    w = ht.random.randn(COLUMNS, COLUMNS)
    z = x + 1j * x

    def k_means():
        made = ht.cluster.KMeans(n_clusters=CLUSTERS, init="random", max_iter=STEPS, tol=-1.0)
        return made.fit(x).cluster_centers_.numpy()

    def pca():
        made = ht.decomposition.PCA(n_components=PARTS)
        return made.fit(x).transform(x).larray

    cases = {
        "k-means": k_means,
        "PCA": pca,
        "x.T @ x": lambda: ht.matmul(x.T, x).numpy(),
        "x @ w": lambda: ht.matmul(x, w).larray,
        "QR": lambda: [t.larray for t in ht.linalg.qr(x)],
        "mean, var, min, max": lambda: [
            f(x, axis=0).numpy() for f in (ht.mean, ht.var, ht.min, ht.max)
        ],
        "FFT of columns, which are cut": lambda: ht.fft.fft(z, axis=0).larray,
        "FFT of rows": lambda: ht.fft.fft(z, axis=1).larray,
    }
    return cases, world.Barrier, lambda t: world.allreduce(t, MPI.MAX), world.rank


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=("weft", "heat"), default="weft")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    made = weft_cases(given.rows) if given.library == "weft" else heat_cases(given.rows)
    cases, barrier, greatest, rank = made
    for name, case in cases.items():
        times = []
        for _ in range(given.rounds + 1):
            barrier()
            start = time.perf_counter()
            case()
            times.append(greatest(time.perf_counter() - start))
        if rank == 0:
            line = {"bench": "heat", "case": name, "library": given.library, "rows": given.rows}
            line |= {"value": statistics.median(times[1:]), "unit": "s"}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
