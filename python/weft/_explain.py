# SPDX-License-Identifier: Apache-2.0
"""Text that also draws itself."""

import os

from weft import _weft


class Explanation(str):
    """The text that `explain` prints; `svg()` is the picture that `visualize` draws of it."""

    def svg(self):
        """The text of an SVG file: the layout before, the plan, the layout after."""
        return self._svg

    def _repr_svg_(self):
        return self._svg


def explain(tensor, placements):
    """The steps, bytes and predicted time of tensor.redistribute(placements). print() it, or draw
    it by its svg()."""
    text = Explanation(_weft.explain(tensor, placements))
    text._svg = _weft.visualize(tensor, placements).svg
    return text


def _save(self, path):
    """Writes the picture to an .svg file."""
    with open(os.fspath(path), "w", encoding="utf-8") as file:
        file.write(self.svg)


_weft.Picture.save = _save
