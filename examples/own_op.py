# SPDX-License-Identifier: Apache-2.0
"""A custom op: squared distances between the rows of two matrices, computed by NumPy. Its rule
declares how it shards, and weft runs it on any layout and number of ranks.

python examples/own_op.py                              # 3 ranks as threads
weft run -n 3 -- python examples/own_op.py             # as processes; mpirun and torchrun too
"""

import numpy as np
import weft


def forward(call, x, y):
    """One device's part, as NumPy arrays: [n, d], [m, d] -> [n, m]."""
    return np.square(x[:, None, :] - y[None, :, :]).sum(axis=2)


def backward(call, gradient):
    """Uses weft's ops, so that it shards too: d/dx of sum g (x - y)^2 is 2 (x sum g - g y)."""
    x, y = call.operands
    dx = 2 * (x * weft.sum(gradient, dim=1, keepdim=True) - gradient @ y)
    dy = 2 * (y * weft.sum(gradient, dim=0).reshape(-1, 1) - gradient.T @ x)
    return dx, dy


# Equal names are one factor; d, which the result lacks, is summed. When d is sharded, each rank
# computes an addend and the result is Partial.
distances = weft.Op("distances", "n d, m d -> n m", forward, backward)


def main(world):
    mesh = weft.DeviceMesh(world, {"ranks": world.size})
    random = np.random.default_rng(0)
    x_values, y_values = random.standard_normal((7, 4)), random.standard_normal((5, 4))
    expected = np.square(x_values[:, None] - y_values).sum(axis=2)
    dx = 2 * (x_values[:, None] - y_values).sum(axis=1)
    rows, columns, whole = weft.Shard(0), weft.Shard(1), weft.Replicate()
    for x_layout, y_layout in [(whole, whole), (rows, whole), (whole, rows), (columns, columns)]:
        x = weft.distribute(weft.from_numpy(x_values), mesh, [x_layout]).requires_grad_()
        y = weft.distribute(weft.from_numpy(y_values), mesh, [y_layout]).requires_grad_()
        before, _ = mesh.traffic
        result = distances(x, y)
        moved = mesh.traffic[0] - before
        weft.sum(result).backward()
        far = np.abs(result.full_tensor().detach().numpy() - expected).max()
        gradient_far = np.abs(x.grad.full_tensor().numpy() - dx).max()
        if world.rank == 0:
            print(f"{x_layout}, {y_layout} -> {result.placements[0]}: {moved} bytes moved")
            print(f"  off NumPy by {far:.0e}, the gradient by {gradient_far:.0e}")


if __name__ == "__main__":
    if weft.launched_ranks() > 1:
        main(weft.connect())
    else:
        weft.run_ranks(3, main)
