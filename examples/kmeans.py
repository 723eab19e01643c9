# SPDX-License-Identifier: Apache-2.0
"""k-means with the names of PyTorch: with `import torch` instead, the same script runs there.

    python examples/kmeans.py
"""

import weft.torch as torch

torch.manual_seed(3)
CENTERS = torch.tensor([[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]])
K = len(CENTERS)

points = torch.cat([center + torch.randn(100, 2) for center in CENTERS])
points = points[torch.randperm(len(points))]

# k-means++: each next mean is a point, drawn in proportion to its squared distance to the others.
means = points[torch.randint(len(points), (1,))]
while means.size(0) < K:
    nearest = torch.cdist(points, means).min(dim=1).values
    means = torch.cat([means, points[torch.multinomial(nearest.square(), 1)]])

for step in range(20):
    distance = ((points[:, None, :] - means[None, :, :]) ** 2).sum(-1)
    label = distance.argmin(dim=1)
    counts = torch.bincount(label, minlength=K).clamp(min=1)
    sums = torch.zeros(K, 2).index_add_(0, label, points)
    moved = sums / counts.unsqueeze(1)
    if torch.allclose(moved, means):
        break
    means = moved

inertia = distance.gather(1, label[:, None]).sum()
print(f"{step} steps, inertia {inertia.item():.0f}")
for center, mean in zip(CENTERS, means[means[:, 0].argsort()][[1, 2, 0]]):
    print(f"center {center.tolist()}, mean [{mean[0].item():.2f}, {mean[1].item():.2f}]")
    assert (mean - center).abs().max() < 0.5
