# SPDX-License-Identifier: Apache-2.0
"""Draws bars of tables in benchmarks/README.md, and shows each above its table."""

import html
import re

COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759"]
# The header of each table that is drawn, the columns with its figures, and the unit.
TABLES = {
    "| configuration | weft | PyTorch | ratio | torch.compile | JAX |": (
        ("weft", "PyTorch", "torch.compile", "JAX"),
        "tokens/s, more is better",
    ),
    "| case | weft [8] | recorded |": (("weft [8]", "PyTorch [8]"), "µs a call, less is better"),
}


def figure(cell):
    """The first number of a cell; None where there is none."""
    match = re.match(r"\s*([\d.]+)", cell)
    return float(match[1]) if match else None


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def bars(rows, unit):
    """An SVG of groups of bars; `rows` are (label, [(column, number)])."""
    most = max(number for _, numbers in rows for _, number in numbers)
    parts, y = [f'<text x="10" y="20" font-size="13">{html.escape(unit)}</text>'], 34
    for label, numbers in rows:
        parts.append(f'<text x="10" y="{y + 12}" font-weight="bold">{html.escape(label)}</text>')
        y += 18
        for number, (column, value) in enumerate(numbers):
            width = max(1, 420 * value / most)
            parts.append(f'<text x="10" y="{y + 11}">{html.escape(column)}</text>')
            parts.append(
                f'<rect x="110" y="{y}" width="{width:.1f}" height="13" fill="{COLOURS[number]}"/>'
            )
            parts.append(f'<text x="{116 + width:.1f}" y="{y + 11}">{value:g}</text>')
            y += 16
        y += 8
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" '
            f'width="620" height="{y}">',
            '<rect width="100%" height="100%" fill="white"/>',
            *parts,
            "</svg>",
        ]
    )


def rows_of(lines, columns):
    """The rows of a table, by its lines, with the figures of some columns."""
    names = cells(lines[0])
    rows = []
    for line in lines[2:]:
        row = dict(zip(names, cells(line)))
        numbers = [(c, figure(row.get(c, ""))) for c in columns]
        rows.append((cells(line)[0], [(c, n) for c, n in numbers if n is not None]))
    return [(label, numbers) for label, numbers in rows if len(numbers) > 1]


def with_plots(text, folder):
    """The page with a picture above each table of TABLES; the pictures are written to a folder."""
    out, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        for head, (columns, unit) in TABLES.items():
            if line.startswith(head):
                end = at
                while end < len(lines) and lines[end].startswith("|"):
                    end += 1
                rows = rows_of(lines[at:end], columns)
                folder.mkdir(parents=True, exist_ok=True)
                file = folder / f"plot{at}.svg"
                file.write_text(bars(rows, unit))
                out += [f"![Bars of the table below: {unit}]({folder.name}/{file.name})", ""]
        out.append(line)
    return "\n".join(out) + "\n"
