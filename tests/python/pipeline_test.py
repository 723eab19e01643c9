# SPDX-License-Identifier: Apache-2.0
"""weft.pipeline: programs, and the stages of a transformer against one rank."""

import pytest
import weft

SIZES = dict(dim=16, layers=5, heads=2, kv_heads=2, head_dim=8, ffn=24, vocabulary=61)
MICRO, ROWS, LENGTH = 4, 4, 9


def batch(step, m):
    ids = (weft.arange(ROWS * (LENGTH + 1)) * (7 + m) + step * 13) % 61
    ids = ids.reshape((ROWS, LENGTH + 1))
    return weft.asarray(ids[:, :-1], copy=True), weft.asarray(ids[:, 1:], copy=True)


def one_rank(steps):
    model = weft.TransformerModel(weft.TransformerConfig(**SIZES))
    model.materialize()
    optimizer = weft.optim.AdamW(model.named_parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(steps):
        optimizer.zero_grad()
        loss = 0.0
        for m in range(MICRO):
            part = model.loss(*batch(step, m)) / MICRO
            part.backward()
            loss += part.item()
        losses.append(loss)
        norms.append(weft.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
    return losses, norms


def stages(world, axes, program, steps, state=None, cut=None):
    mesh = weft.DeviceMesh(world, axes)
    config = weft.TransformerConfig(**SIZES)
    model = weft.pipeline.PipelinedTransformer(mesh, config, program, LENGTH)
    rows = {name: weft.Shard(0) for name in axes if name not in ("pp", "tp")}
    if "tp" in axes:
        weft.pipeline.parallelize(model, "tp", weft.transformer_styles(config))
    if rows:
        for stage in model.stages:
            weft.fully_shard(stage, model.stage_mesh[next(iter(rows))])
    model.materialize()
    optimizer = weft.optim.AdamW(model.named_parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(steps):
        batches = [
            tuple(weft.distribute(x, mesh, rows) if len(axes) > 1 else x for x in batch(step, m))
            for m in range(MICRO)
        ]
        optimizer.zero_grad()
        losses.append(sum(model.differentiate(batches, [1 / MICRO] * MICRO)))
        norms.append(model.clip_grad_norm(1.0))
        optimizer.step()
    return losses, norms


@pytest.mark.parametrize(
    "axes", [{"pp": 2}, {"pp": 3}, {"pp": 2, "dp": 2}, {"pp": 2, "tp": 2}], ids=str
)
@pytest.mark.parametrize("schedule", ["one_forward_one_backward", "zero_bubble", "interleaved"])
def test_trains_as_one_rank(axes, schedule):
    if schedule == "interleaved" and axes == {"pp": 3}:
        pytest.skip("five layers are less than six stages")
    program = getattr(weft.pipeline, schedule)(axes["pp"], MICRO)
    ranks = 1
    for size in axes.values():
        ranks *= size
    expected_losses, expected_norms = weft.run_ranks(1, lambda world: one_rank(5))[0]
    for losses, norms in weft.run_ranks(ranks, lambda w: stages(w, axes, program, 5)):
        assert losses == pytest.approx(expected_losses, rel=1e-4)
        assert norms == pytest.approx(expected_norms, rel=1e-3)


def test_programs_are_values():
    program = weft.pipeline.one_forward_one_backward(2, 2)
    assert (program.name, program.ranks, program.stages, program.microbatches) == ("1f1b", 2, 2, 2)
    assert program.rank_of_stage == [0, 1]
    assert program.steps[1][:3] == [
        ("receive_activation", 1, 0),
        ("forward", 1, 0),
        ("receive_activation", 1, 1),
    ]
    assert str(program).splitlines()[1] == "rank 0: F0 >F0 F1 >F1 <B0 B0 <B1 B1 R"
    assert program.predict().bubble == pytest.approx(1 / 3)
    assert program.predict(backward_input=0, backward_weight=0).held == [2, 1]
    assert weft.pipeline.zero_bubble(2, 2).predict().seconds == 7
    assert program.visualize().svg.startswith("<svg ")
    with pytest.raises(ValueError, match="memory: activations of rank 0 take 20 bytes"):
        program.check(activation_bytes=[10, 10], budget=15)
    assert program.held_bytes([10, 10], [3, 3]) == [23, 16]


def test_explain_draws_programs():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        model = weft.nn.Sequential(weft.nn.Linear(4, 6), weft.nn.Linear(6, 4))
        for part in model:
            weft.fully_shard(part, mesh)
        weft.fully_shard(model, mesh)
        x = weft.empty((8, 64), device="meta", mesh=mesh, placements=[weft.Shard(0)])
        w = weft.empty((64, 32), device="meta", mesh=mesh, placements=[weft.Shard(1)])
        schedule = weft.explain_schedule(model, sync=False)
        return weft.explain(model, sync=False), schedule, weft.explain(lambda: x @ w)

    step, schedule, product = weft.run_ranks(2, body)[0]
    assert step == schedule and step.svg().startswith("<svg ") and "unshard 0</text>" in step.svg()
    first, second, last = product.splitlines()
    assert first.startswith("forward   exchange for matmul over dp: S(0) -> R, 1.0 KiB")
    assert second == "forward   compute matmul"
    assert last == "received 1.0 KiB, peak memory 2.5 KiB"
    table = weft.explain(weft.pipeline.gpipe(2, 2))
    assert "rank 1:" in table and table.svg().startswith("<svg ")
    with pytest.raises(TypeError, match="explain: the argument is of type int, expected"):
        weft.explain(3)
    weft.set_strict_plan(True)
    try:
        weft.run_ranks(2, lambda world: world.rank)
    finally:
        weft.set_strict_plan(False)


def test_a_table_is_checked():
    table = [[("forward", 0, 0), ("backward", 0, 0)], [("forward", 1, 0), ("backward", 1, 0)]]
    program = weft.pipeline.with_messages("mine", 1, [0, 1], table)
    program.check()
    assert program.steps[0][-1] == ("reduce", 0, -1)
    with pytest.raises(ValueError, match='step is "jump", expected forward'):
        weft.pipeline.with_messages("mine", 1, [0, 1], [[("jump", 0, 0)], table[1]])
    missing = weft.pipeline.with_messages("mine", 1, [0, 1], [table[0][:1], table[1]])
    with pytest.raises(ValueError, match="gradient scale: microbatch 0 counts 0 times"):
        missing.check()


def test_a_run_without_a_pipeline_takes_its_checkpoint(tmp_path):
    program = weft.pipeline.one_forward_one_backward(2, MICRO)

    def save(world):
        mesh = weft.DeviceMesh(world, {"pp": 2})
        config = weft.TransformerConfig(**SIZES)
        model = weft.pipeline.PipelinedTransformer(mesh, config, program, LENGTH)
        model.materialize()
        optimizer = weft.optim.AdamW(model.named_parameters(), lr=1e-2)
        model.differentiate([batch(0, m) for m in range(MICRO)], [1 / MICRO] * MICRO)
        optimizer.step()
        state = weft.TrainingState()
        model.add_to(state, optimizer)
        path = weft.CheckpointSaver(world, str(tmp_path / "run")).save(1, state)
        one = model.evaluate([batch(1, 0)], [1.0])
        world.barrier()
        return path, one[0]

    path, expected = weft.run_ranks(2, save)[0]

    def load(world):
        model = weft.TransformerModel(weft.TransformerConfig(**SIZES))
        model.materialize()
        optimizer = weft.optim.AdamW(model.named_parameters(), lr=1e-2)
        state = weft.TrainingState()
        state.add("model", model)
        state.add("optimizer", optimizer)
        weft.load(path, state)
        return model.loss(*batch(1, 0)).item()

    assert weft.run_ranks(1, load)[0] == pytest.approx(expected, rel=1e-5)
