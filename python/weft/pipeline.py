# SPDX-License-Identifier: Apache-2.0
"""Pipelines: programs of steps, checked before they run, and the stages of a transformer.

    program = weft.pipeline.one_forward_one_backward(2, 8)
    print(program, program.visualize())
    model = weft.pipeline.PipelinedTransformer(mesh, config, program, sequence)
"""

from fnmatch import fnmatchcase as _fnmatchcase

import weft as _weft
from weft._weft import (
    PipelinedTransformer,
    PipelinePrediction,
    PipelineProgram,
    gpipe,
    interleaved,
    one_forward_one_backward,
    stage_ends,
    with_messages,
    zero_bubble,
)

__all__ = [
    "PipelinePrediction",
    "PipelineProgram",
    "PipelinedTransformer",
    "gpipe",
    "interleaved",
    "one_forward_one_backward",
    "parallelize",
    "stage_ends",
    "with_messages",
    "zero_bubble",
]


def _is_match(pattern, path):
    patterns, names = pattern.split("."), path.split(".")
    return len(patterns) == len(names) and all(map(_fnmatchcase, names, patterns))


def parallelize(model, axis, plan):
    """Calls `weft.parallelize` for each stage of this rank, along an axis of the stages' mesh, with
    the styles of the plan whose paths match modules of the stage."""
    for stage in model.stages:
        paths = [path for path, _ in stage.named_modules()]
        own = {key: style for key, style in plan.items() if any(_is_match(key, p) for p in paths)}
        if own:
            _weft.parallelize(stage, model.stage_mesh[axis], own)
