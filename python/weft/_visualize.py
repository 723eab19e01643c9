# SPDX-License-Identifier: Apache-2.0
"""Which rank holds what, as text and as a picture."""

import html
import math

from weft import _weft

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
        return _document(*self._drawn())

    def _drawn(self):
        """Width, height and elements of the picture."""
        rows, columns = ([1, 1] + list(self._shape))[-2:]
        scale = min(1.0, 160 / max(1, rows * _CELL, columns * _CELL))
        cell = _CELL * scale
        longest = max(len(name + note) for name, _, note in self._ranks)
        width, height = max(columns * cell, 150, 6.2 * longest), rows * cell + 34
        across = min(len(self._ranks), _WIDEST)
        down = math.ceil(len(self._ranks) / across)
        parts = [f'<text x="{_GAP}" y="18" font-size="13">{html.escape(self._title)}</text>']
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
        least = _GAP * 2 + 7 * len(self._title)
        return max(across * (width + _GAP) + _GAP, least), down * (height + _GAP) + 30, parts


class Change(Picture):
    """A redistribution, from `visualize`: the layout before, the plan, the layout after."""

    def __init__(self, before, plan, after):
        self._before, self._plan, self._after = before, plan, after

    def __str__(self):
        return "\n".join([str(self._before), self._plan, str(self._after)])

    __repr__ = __str__

    def _drawn(self):
        width, height, parts = self._before._drawn()
        lines = self._plan.splitlines()[1:]  # without the layouts, which the pictures show
        for number, line in enumerate(lines):
            parts.append(
                f'<text x="{_GAP * 2}" y="{height + 16 + 18 * number:.0f}" font-size="13" '
                f'fill="#555555">{"&#160;" if number else "&#8595;"} {html.escape(line)}</text>'
            )
        down = height + 18 * len(lines) + 8
        after_width, after_height, after = self._after._drawn()
        parts += [f'<g transform="translate(0 {down:.0f})">', *after, "</g>"]
        least = _GAP * 3 + 7 * max(map(len, lines), default=0)
        return max(width, after_width, least), down + after_height, parts


def _document(width, height, parts):
    """An SVG file that is readable on a ground of any colour."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" '
        f'width="{width:.0f}" height="{height:.0f}">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"])


def _rectangle(x, y, width, height, colour):
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" stroke="#888888" stroke-width="0.5"/>'
    )


def visualize(tensor, placements=None):
    """Which rank holds which part of a tensor: print it, look at its `svg`, or let a notebook show
    it. With `placements`, also the plan of `tensor.redistribute(placements)` and which rank holds
    which part after it. No communication."""
    if placements is not None:
        plan = _weft.explain(tensor, placements)
        after = _weft.empty(tensor.shape, dtype=tensor.dtype, mesh=tensor.device_mesh,
                            placements=placements)  # fmt: skip
        return Change(visualize(tensor), plan.strip(), visualize(after))
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
