# SPDX-License-Identifier: Apache-2.0
"""Tensors that move between meshes."""

from weft import _weft


def _named(tensors):
    """Tensors by name; a list's by their numbers, a single one's is empty."""
    if tensors is None:
        return {}
    if isinstance(tensors, _weft.StateDict):
        return tensors.tensors
    if isinstance(tensors, dict):
        return tensors
    if isinstance(tensors, (list, tuple)):
        return {f"#{number:06}": tensor for number, tensor in enumerate(tensors)}
    return {"": tensors}


def to_mesh(tensors, mesh, placements=None, *, ranks=None, round_bytes=0):
    """The same values over another mesh: of a tensor, a list, a dict, or the tensors of a
    StateDict, all in one plan. Ranks outside of the mesh that they come from pass None for
    `tensors`, ranks outside of the one that they move to pass None for `mesh`, and get None for
    each tensor; or, for one that requires a gradient, a scalar whose backward() takes part in that
    of the other ranks. All ranks of both meshes call it. Arguments are those of MeshMove, which
    moves tensors again and again by one plan."""
    given = _named(tensors)
    move = _weft.MeshMove(given, mesh, placements, ranks=ranks, round_bytes=round_bytes)
    moved = move.run(given)
    if list(moved) == [""]:
        return moved[""]
    if moved and all(name[:1] == "#" and name[1:].isdigit() for name in moved):
        return list(moved.values())
    return moved
