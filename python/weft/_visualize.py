# SPDX-License-Identifier: Apache-2.0
"""Which rank holds what, as text and as a picture."""

import html
import math

_CELL, _GAP, _WIDEST = 14, 10, 8
_COLOURS = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
    "#86bcb6", "#d37295", "#a0cbe8", "#ffbe7d", "#8cd17d", "#b6992d", "#499894", "#79706e",
]  # fmt: skip


def _slices(offset, shape):
    if math.prod(shape) == 0:
        return "nothing"
    return "[" + ", ".join(f"{o}:{o + n}" for o, n in zip(offset, shape)) + "]"


class Picture:
    """What `visualize` gives: str() of it is the text, `svg` the picture; notebooks show it."""

    def __init__(self, title, ranks, shape):
        self._title, self._ranks, self._shape = title, ranks, shape

    def __str__(self):
        width = max(len(name) for name, *_ in self._ranks)
        lines = [f"{name:<{width}}  {_slices(*box)}{note}" for name, box, note in self._ranks]
        return "\n".join([self._title, *lines])

    __repr__ = __str__

    def _repr_svg_(self):
        return self.svg

    def save(self, path):
        """Writes the picture to an .svg file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    @property
    def svg(self):
        """The tensor's last two dims once a rank, the part that the rank holds filled; of more
        dims the first ones are told in words."""
        rows, columns = ([1, 1] + list(self._shape))[-2:]
        scale = min(1.0, 160 / max(1, rows * _CELL, columns * _CELL))
        cell = _CELL * scale
        width, height = max(columns * cell, 150), rows * cell + 34
        across = min(len(self._ranks), _WIDEST)
        down = math.ceil(len(self._ranks) / across)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" '
            f'width="{across * (width + _GAP) + _GAP:.0f}" '
            f'height="{down * (height + _GAP) + 30:.0f}">',
            f'<text x="{_GAP}" y="18" font-size="13">{html.escape(self._title)}</text>',
        ]
        for number, (name, (offset, shape), note) in enumerate(self._ranks):
            x = _GAP + number % across * (width + _GAP)
            y = 30 + number // across * (height + _GAP)
            top, left = ([0, 0] + list(offset))[-2:]
            held_rows, held_columns = ([1, 1] + list(shape))[-2:]
            words = name + note + ("" if len(shape) <= 2 else " " + _slices(offset, shape))
            parts.append(f'<text x="{x:.1f}" y="{y + 12:.1f}">{html.escape(words)}</text>')
            parts.append(_rectangle(x, y + 18, columns * cell, rows * cell, "#eeeeee"))
            if math.prod(shape):
                colour = _COLOURS[number % len(_COLOURS)]
                parts.append(
                    _rectangle(x + left * cell, y + 18 + top * cell, held_columns * cell,
                               held_rows * cell, colour)
                )  # fmt: skip
        return "\n".join([*parts, "</svg>"])


def _rectangle(x, y, width, height, colour):
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" stroke="#888888" stroke-width="0.5"/>'
    )


def visualize(tensor):
    """Which rank holds which part of a tensor: print it, look at its `svg`, or let a notebook show
    it. No communication."""
    if not tensor.is_sharded:
        whole = ((0,) * tensor.ndim, tensor.shape)
        return Picture(repr(tensor).partition("\n")[0], [("here", whole, "")], tensor.shape)
    mesh = tensor.device_mesh
    sums = [
        f"{name} {placement.reduce_op}"
        for name, placement in zip(mesh.mesh_dim_names, tensor.placements)
        if placement.is_partial()
    ]
    note = f" (an addend: {', '.join(sums)})" if sums else ""
    ranks = []
    for rank, box in enumerate(tensor.boxes()):
        at, left = [], rank
        for name, size in reversed(list(zip(mesh.mesh_dim_names, mesh.shape))):
            at.append(f"{name}={left % size}")
            left //= size
        ranks.append((f"rank {rank} ({', '.join(reversed(at))})", box, note))
    return Picture(repr(tensor).partition("\n")[0], ranks, tensor.shape)
