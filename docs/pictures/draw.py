# SPDX-License-Identifier: Apache-2.0
"""Draws the pages' pictures by weft itself, next to this file or in FOLDER: draw.py [FOLDER]"""

import pathlib
import sys

import weft

S, R, P = weft.Shard, weft.Replicate, weft.Partial


def pictures(world):
    mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
    whole = weft.zeros((8, 8))
    rows = weft.distribute(whole, mesh, [S(0), R()])
    blocks = weft.distribute(whole, mesh, [S(0), S(1)])
    uneven = weft.distribute(weft.zeros((7, 8)), mesh, [S(0), S(0)])
    product = weft.distribute(whole, mesh, [S(0), S(1)]) @ weft.distribute(whole, mesh, [R(), S(0)])
    return {
        "rows": weft.visualize(rows),
        "blocks": weft.visualize(blocks),
        "uneven": weft.visualize(uneven),
        "partial": weft.visualize(product),
        "redistribution": weft.visualize(blocks, [S(1), R()]),
        "reduction": weft.visualize(product, [S(0), S(1)]),
    }


def draw(folder):
    for name, picture in weft.run_ranks(4, pictures)[0].items():
        picture.save(folder / f"{name}.svg")


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
