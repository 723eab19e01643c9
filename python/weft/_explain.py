# SPDX-License-Identifier: Apache-2.0
"""Text that also draws itself."""

import os

from weft import _weft


class Explanation(str):
    """The text that `explain` prints; `svg()` is a picture of it."""

    def svg(self):
        """The text of an SVG file: rows of steps over time and the memory that they hold; of a
        redistribution the layout before, the plan, the layout after."""
        return self._svg

    def _repr_svg_(self):
        return self._svg


def explain(what, placements=None, **kind):
    """The steps, bytes and predicted time of tensor.redistribute(placements); of a step of a fully
    sharded model, whose kind is given as to explain_schedule; of the ops that a function calls, on
    this rank (give it tensors on device "meta": nothing is then computed or communicated); or of a
    pipeline's program. print() it, or draw it by its svg()."""
    if placements is not None:
        picture = _weft.visualize(what, placements)
        text = _weft.explain(what, placements)
    elif isinstance(what, _weft.PipelineProgram):
        picture = what.visualize(**kind)
        text = repr(picture)
    elif isinstance(what, _weft.Module):
        picture = _weft.visualize_schedule(what, **kind)
        text = _weft.explain_schedule(what, **kind)
    elif callable(what):
        picture = _weft.visualize_calls(what)
        text = repr(picture)
    else:
        kind_of = type(what).__name__
        raise TypeError(
            f"explain: the argument is of type {kind_of}, expected a tensor with placements, a "
            "fully sharded model, a function or a pipeline's program"
        )
    made = Explanation(text)
    made._svg = picture.svg
    return made


def _save(self, path):
    """Writes the picture to an .svg file."""
    with open(os.fspath(path), "w", encoding="utf-8") as file:
        file.write(self.svg)


_weft.Picture.save = _save
