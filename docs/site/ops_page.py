# SPDX-License-Identifier: Apache-2.0
"""Writes the page of ops from what the ops themselves state: rule, structure, linear operands."""

import re

import weft

BY_ATTRIBUTES = re.compile(r"\s*\(by its attributes; this one of (.*)\)$")
KINDS = ("stays", "partial", "exchanged", "gathered", "fetched")
HEAD = """# Ops

An op states its layouts by a rule in factor notation. Equal names are one factor. An operand may be
cut along a factor on any mesh axis; the op then computes without communication, as long as all
operands that have the factor are cut alike. The table lists what follows from each rule:

- **stays cut**: a cut of this factor in the operands is a cut in the result; nothing moves.
- **becomes Partial**: no result has the factor. Each rank computes its share, and the result is a
  Partial that a later op or `redistribute` reduces.
- **exchanged**: ranks exchange small results along this factor, such as the largest element of each
  row, or the parts themselves (`sort`); the dim stays cut.
- **gathered**: the factor is in brackets. The op needs it whole on each rank, so that a cut operand
  moves first. The inner ones of an operand's merged dims, `r` of `(g r)`, are whole too.
- **fetched**: the op needs a slice of the operand or the rows that indices name (`~`); ranks
  exchange these only.

The column **gradient** states how often the op can be differentiated, or why it cannot. A fused op
that is *defined* states what it means in simpler ops, from which second derivatives are computed.

`...` is any number of leading dims. A rule that depends on the op's attributes is shown for its
first sample, with the shapes of the operands in the last column. `weft.ops.NAME` has the same data
in a program: `.rule`, `.structure`, `.linear`, `.staged` and `.samples`. `weft.explain_model`,
`weft.implicit_traffic()` and `with weft.traffic("forbid"):` show and forbid what an op moves
([rules](../concepts/rules.md)). All ops run on the CPU and on CUDA devices.

| op | rule | stays cut | becomes Partial | exchanged | gathered | fetched | gradient | shapes |
|---|---|---|---|---|---|---|---|---|
"""


def factors(side):
    """The factors of one side of a rule, as they are written."""
    return re.findall(r"\.\.\.|[\[~+]?\w+(?::\w+)?\]?", re.sub("[()]", " ", side))


def parsed(op):
    """The factors of an op's rule by what happens to their cuts, and the shapes of its sample."""
    of = BY_ATTRIBUTES.search(op.rule)
    rule = BY_ATTRIBUTES.sub("", op.rule).strip()
    left, _, right = rule.partition("->")
    operands = factors(left)
    # A chunk of merged dims cuts the outermost; the others are whole. Results may cut inner ones.
    inner = {f for group in re.findall(r"\(([^)]*)\)", left) for f in group.split()[1:]}
    # An op without results changes its operands, which stay cut.
    kept = {f for f in factors(right) if f[0] not in "[+"} if right.strip() else set(operands)
    kind = {}
    for written in operands:
        name = written.strip("[~]").split(":")[0]
        if written.startswith("["):
            kind[name] = "gathered"
        elif written.startswith("~"):
            kind[name] = "fetched"
        elif name in inner:
            kind.setdefault(name, "gathered")
        elif name in op.staged:
            kind.setdefault(name, "exchanged")
        else:
            kind.setdefault(name, "stays" if name in kept else "partial")
    found = {k: [n for n in kind if kind[n] == k] for k in KINDS}
    return found | {"rule": rule, "shapes": of[1] if of else ""}


def gradient(op):
    if op.gradient_reason:
        return f"{op.gradient_order}: {op.gradient_reason}"
    return op.gradient_order + (", defined" if op.has_definition else "")


def row(op):
    facts = parsed(op)
    shown = lambda names: " ".join(f"`{n}`" for n in names)
    cells = [
        f"`{op.name}`",
        f"`{facts['rule']}`",
        *(shown(facts[kind]) for kind in KINDS),
        gradient(op),
        facts["shapes"].replace("|", "\\|"),
    ]
    return "| " + " | ".join(cells) + " |\n"


def page():
    return HEAD + "".join(row(op) for op in sorted(weft.all_ops(), key=lambda op: op.name))
