# SPDX-License-Identifier: Apache-2.0
"""Other shapes and places of the same elements."""

import numpy as np

from weft import _weft
from weft._array_api._beside import (
    copied,
    normalized_axes,
    normalized_axis,
    tensor_of,
    values_beside,
    values_of,
)


def reshape(x, /, shape, *, copy=None):
    """The same elements in row-major order as `shape`, of whose sizes one may be -1; a view where
    memory allows. With copy=True always new memory; with copy=False never, but ValueError."""
    if copy is None:
        return _weft.reshape(x, shape)
    if copy:
        return copied(_weft.reshape(x, shape))
    x = tensor_of(x)
    made = _weft.reshape(x, shape)
    if x.is_sharded or x.dtype is _weft.bfloat16:
        raise ValueError(
            f"reshape: whether a tensor {list(x.shape)} shares its memory is not known here; leave "
            "out copy=False"
        )
    if x.size and not np.may_share_memory(made.detach().numpy(), x.detach().numpy()):
        raise ValueError(
            f"reshape: a tensor {list(x.shape)} cannot be {list(made.shape)} without a copy"
        )
    return made


def broadcast_arrays(*arrays):
    """The tensors as a list, each broadcast to the shape that all of them fit; no copies.
    ValueError when they fit none."""
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise ValueError(f"broadcast_arrays: {shapes} broadcast to no common shape") from None
    return [_weft.broadcast_to(array, shape) for array in arrays]


def expand_dims(x, /, *, axis=0):
    """With a new dim of size 1 at `axis`; a view. ValueError when that is beyond the dims."""
    return _weft.unsqueeze(x, axis)


def moveaxis(x, source, destination, /):
    """With the dims `source` (one or several) at the places `destination`, and the others in their
    order; a view. ValueError when their numbers differ or one is given twice."""
    sources = normalized_axes("moveaxis", source, x.ndim)
    places = normalized_axes("moveaxis", destination, x.ndim)
    if len(sources) != len(places):
        raise ValueError(f"moveaxis: {len(sources)} dims go to {len(places)} places")
    if len({*sources}) < len(sources) or len({*places}) < len(places):
        raise ValueError(f"moveaxis: {source} to {destination} names a dim twice")
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return _weft.permute_dims(x, order)


def _repeated(x, count, axis):
    """Each slice of `axis` `count` times in a row."""
    shape = list(x.shape)
    many = shape[: axis + 1] + [count] + shape[axis + 1 :]
    shape[axis] *= count
    return _weft.reshape(
        _weft.broadcast_to(_weft.unsqueeze(x, axis + 1), tuple(many)), tuple(shape)
    )


def repeat(x, repeats, /, *, axis=None):
    """Each element of `axis` (of the flattened tensor when None) as often as `repeats` says: an
    int, or a tensor of one for each, whose values every rank looks at. ValueError for negative
    ones."""
    if axis is None:
        x, axis = _weft.reshape(x, (x.size,)), 0
    axis = normalized_axis("repeat", axis, x.ndim)
    if not isinstance(repeats, int):
        counts = values_of(repeats)
        if counts.size != 1:
            return _repeated_by(x, counts, axis)
        repeats = int(counts.reshape(())[()])
    if repeats < 0:
        raise ValueError(f"repeat: {repeats} times; at least 0")
    return _repeated(x, repeats, axis)


def _repeated_by(x, counts, axis):
    if counts.shape != (x.shape[axis],):
        raise ValueError(
            f"repeat: {list(counts.shape)} counts for the {x.shape[axis]} elements of dim {axis}"
        )
    if counts.size and counts.min() < 0:
        raise ValueError(f"repeat: {counts.min()} times; at least 0")
    return _weft._take(x, values_beside(x, np.repeat(np.arange(counts.size), counts)), axis)


def _rolled(x, shift, axis):
    size = x.shape[axis]
    first = -shift % size if size else 0
    if first == 0:
        return tensor_of(x)
    return _weft.concat([_weft.slice(x, axis, first, size), _weft.slice(x, axis, 0, first)], axis)


def roll(x, /, shift, *, axis=None):
    """The elements moved on by `shift` along `axis`, those that leave at the end coming in at the
    front; several shifts for several axes; over the flattened tensor when axis is None. ValueError
    when their numbers differ."""
    if axis is None:
        if not isinstance(shift, int):
            raise ValueError("roll: several shifts need as many axes")
        flat = _weft.reshape(x, (x.size,))
        return _weft.reshape(_rolled(flat, shift, 0), x.shape)
    axes = normalized_axes("roll", axis, x.ndim)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for one, along in zip(shifts, axes):
        x = _rolled(x, one, along)
    return x


def stack(arrays, /, *, axis=0):
    """Tensors of one shape along a new dim `axis`. ValueError when shapes differ or there are
    none."""
    arrays = list(arrays)
    if any(array.shape != arrays[0].shape for array in arrays):
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise ValueError(f"stack: the shapes are {shapes}; they must be equal")
    return _weft.concat([_weft.unsqueeze(array, axis) for array in arrays], axis)


def tile(x, repetitions, /):
    """The whole tensor `repetitions[i]` times one after the other along dim i, counted from the
    last one. ValueError for a negative number."""
    counts = (repetitions,) if isinstance(repetitions, int) else tuple(repetitions)
    if any(count < 0 for count in counts):
        raise ValueError(f"tile: repetitions are {counts}; at least 0")
    ndim = max(x.ndim, len(counts))
    counts = (1,) * (ndim - len(counts)) + counts
    x = _weft.reshape(x, (1,) * (ndim - x.ndim) + tuple(x.shape))
    for axis, count in enumerate(counts):
        if count != 1:
            x = _tiled(x, count, axis)
    return x


def _tiled(x, count, axis):
    shape = list(x.shape)
    many = shape[:axis] + [count] + shape[axis:]
    shape[axis] *= count
    return _weft.reshape(_weft.broadcast_to(_weft.unsqueeze(x, axis), tuple(many)), tuple(shape))


def unstack(x, /, *, axis=0):
    """A tuple of the slices of `axis`, which they have not any more. ValueError when x has no such
    dim."""
    axis = normalized_axis("unstack", axis, x.ndim)
    return tuple(_weft.squeeze(_weft.slice(x, axis, i, i + 1), axis) for i in range(x.shape[axis]))
