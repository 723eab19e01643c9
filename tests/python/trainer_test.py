# SPDX-License-Identifier: Apache-2.0
"""weft.Trainer from Python: modules, losses, rows and callbacks; losses against PyTorch's."""

import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import weft
from weft import nn, optim

ROOT = pathlib.Path(__file__).parent.parent.parent
GROUPED = ROOT / "tests" / "reference" / "grouped"
REFERENCE = json.loads((ROOT / "tests" / "reference" / "trainer.json").read_text())
VOCABULARY, SEQ = 89, 24


def masked_row(index):
    """Rows "masked" of tests/reference/make_trainer.py."""
    j = np.arange(SEQ + 1)
    ids = (index * index * 31 + j * j * 7 + index * j * 13 + 5) % VOCABULARY
    counts = ((index + 2 * j[:-1]) % 5 >= index % 4) & (index // 6 != 3)
    return ids[:-1], np.where(counts, ids[1:], -100)


class Bigrams(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 8)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, ids):
        return self.head(self.table(ids))


def llama(mesh):
    model = nn.TransformerModel(nn.transformer_config(str(GROUPED)))
    for block in model.blocks():
        weft.fully_shard(block, mesh)
    weft.fully_shard(model, mesh)
    model.materialize()
    weft.load_hugging_face(model, str(GROUPED))
    return model


def test_reproducible_losses_are_equal_on_any_ranks():
    def main(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        model = llama(mesh)
        losses = []
        weft.Trainer(
            model,
            masked_row,
            optim.AdamW(model.parameters(), lr=2e-3),
            mesh,
            batch=8,
            steps=4,
            reproducible=True,
            on_step=lambda report: losses.append((report.loss, report.gradient_norm)),
        ).run()
        return losses

    assert weft.run_ranks(1, main)[0] == weft.run_ranks(3, main)[0] == weft.run_ranks(4, main)[0]


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_losses_are_those_of_pytorch(ranks):
    def main(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        model = llama(mesh)
        adamw = optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
        losses, evaluations = [], []
        trainer = weft.Trainer(
            model,
            masked_row,
            adamw,
            mesh,
            batch=6,
            accumulate=2,
            steps=20,
            validation=[masked_row(i) for i in range(1000, 1007)],
            on_step=lambda report: losses.append((report.loss, report.skipped)),
            on_evaluation=lambda step, loss: evaluations.append((step, loss)),
        )
        assert trainer.run() and trainer.step == 20
        return losses, evaluations, trainer.evaluate()

    for losses, evaluations, loss in weft.run_ranks(ranks, main):
        for (own, skipped), expected in zip(losses, REFERENCE["masked"], strict=True):
            if expected is None:
                assert math.isnan(own) and skipped == "no target counts"
            else:
                assert own == pytest.approx(expected, abs=1e-4) and skipped == ""
        assert evaluations == [(20, loss)]
        assert loss == pytest.approx(REFERENCE["validation"], abs=1e-4)


def bigram_run(rows, *, steps=6, ranks=2, **options):
    """The losses of a run of Bigrams with its loss in Python."""

    def main(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        model = Bigrams()
        weft.fully_shard(model, mesh)
        model.materialize()
        losses = []

        def loss(ids, targets):
            logits = model(ids)
            return weft.cross_entropy(logits.reshape((-1, VOCABULARY)), targets.reshape((-1,)))

        adamw = optim.AdamW(model.parameters(), lr=3e-2)
        trainer = weft.Trainer(
            model,
            rows,
            adamw,
            mesh,
            loss,
            batch=4,
            steps=steps,
            on_step=lambda report: losses.append(report.loss),
            **options,
        )
        trainer.run()
        return losses

    return weft.run_ranks(ranks, main)[0]


class Reader:
    def read(self, first, count):
        return [masked_row(first + i) for i in range(count)]


class Iterable:
    def __iter__(self):
        return (masked_row(i) for i in range(24))


def test_takes_rows_in_any_form_and_a_module_and_loss_of_python():
    expected = bigram_run(masked_row)
    rows = [masked_row(i) for i in range(24)]
    assert not math.isnan(expected[0])
    for data in (rows, Iterable(), Reader()):
        np.testing.assert_array_equal(bigram_run(data), expected)
    # A row without targets has a token more.
    whole = np.array([np.append(ids, 1) for ids, _ in rows])
    assert bigram_run(whole) == pytest.approx(
        bigram_run([(row[:-1], row[1:]) for row in whole.tolist()])
    )


def test_resumes_on_another_number_of_ranks(tmp_path):
    whole = bigram_run(masked_row, steps=9)
    saved, lines = [], []
    folder = str(tmp_path / "run")
    first = bigram_run(masked_row, steps=5, save=folder, on_save=saved.append, ranks=3)
    rest = bigram_run(masked_row, steps=9, save=folder, resume=folder, tell=lines.append)
    assert first + rest == pytest.approx(whole, abs=1e-5, nan_ok=True)
    assert weft.inspect_checkpoint(saved[0])["verdict"] == "COMPLETE"
    assert lines[0].startswith("resumed from ")
    with pytest.raises(ValueError, match="resume: clip is 3.*allow_change clip"):
        bigram_run(masked_row, steps=12, resume=folder, clip=3)
    # The last steps are read again, though a function has no digest.
    with pytest.raises(ValueError, match="used different tokens"):
        bigram_run(lambda index: masked_row(index + 1), steps=12, resume=folder)
    bigram_run(masked_row, steps=12, resume=folder, clip=3, allow_change=["clip"])


def test_metrics_and_schedule(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    bigram_run(masked_row, metrics=[str(metrics)], schedule=lambda step: 0.01 * (step + 1))
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["lr"] for line in lines] == pytest.approx([0.01 * (s + 1) for s in range(6)])
    assert lines[5]["loss"] is None and lines[5]["skipped"] == "no target counts"


def test_groups_keep_their_rates_and_averages_are_validated():
    def body(world):
        model = llama(weft.DeviceMesh(world, {"dp": world.size}))
        adamw, reports = optim.AdamW(optim.groups(model, {"embed": {"lr": 1e-5}}, lr=2e-5)), []
        trainer = weft.Trainer(
            model, masked_row, adamw, weft.DeviceMesh(world, {"dp": world.size}), batch=6, steps=4,
            schedule=optim.schedule_named("linear", 2e-5, 0, 4), ema=0.5, clip_value=1.0,
            validation=[masked_row(i) for i in range(4)], on_step=reports.append)
        trainer.run()
        for step, report in enumerate(reports):
            part = 1 - step / 4
            assert report.learning_rates == pytest.approx([1e-5 * part, 2e-5 * part])
        assert reports[-1].validation_loss == pytest.approx(trainer.evaluate())

    weft.run_ranks(2, body)


def test_names_what_is_wrong():
    rows = [masked_row(i) for i in range(4)]
    for data, error, text in [
        (7, TypeError, "trainer: data is a int, expected a Dataset"),
        ([], ValueError, "trainer: data has no rows, expected at least one"),
        ([[1]], ValueError, "trainer: row 0 of data has no target, expected at least one"),
        ([["a", "b"]], ValueError, "trainer: row 0 of data has a list, expected whole numbers"),
        ([(1, 2, 3, 4)], ValueError, "trainer: row 0 of data has 4 parts, expected ids"),
        ([[1, 2, 3], [1, 2]], ValueError, "trainer: row 1 of data has 2 numbers, expected 3"),
        ([rows[0], [1, 2]], ValueError, "trainer: row 1 of data has other parts than row 0"),
    ]:
        with pytest.raises(error, match=text):
            bigram_run(data)
    with pytest.raises(ValueError, match="on_spike"):
        bigram_run(rows, on_spike="ignore")
    with pytest.raises(ValueError, match="row 0 of data has a numpy.ndarray, expected whole"):
        bigram_run([np.ones(17) / 2])
    with pytest.raises(TypeError, match="data is an iterator, which is read once, expected rows"):
        bigram_run(iter(rows))
    with pytest.raises(TypeError, match="trainer: schedule is a LambdaLR, expected a function of"):
        bigram_run(rows, schedule=optim.lr_scheduler.LambdaLR(
            optim.SGD(Bigrams(), lr=0.1), lambda step: 1.0))
    for options, text in [
        ({"ema": 1.5}, "ema is 1.5, expected a decay of at least 0 and below 1"),
        ({"validation": masked_row}, "validation has no end, expected validation_batches above 0"),
        ({"most_skipped": -1}, "most_skipped is -1, expected at least 0"),
        ({"save_every": -2}, "save_every is -2, expected at least 0"),
    ]:
        with pytest.raises(ValueError, match=f"trainer: {text}"):
            bigram_run(rows, **options)


def test_ranks_share_their_options():
    def body(world, **options):
        model, mesh = Bigrams(), weft.DeviceMesh(world, {"dp": world.size})
        weft.fully_shard(model, mesh)
        model.materialize()
        adamw = optim.AdamW(model.parameters())
        trainer = weft.Trainer(
            model, masked_row, adamw, mesh, lambda i, t: weft.mean(model(i)), batch=4, **options
        )
        trainer.run()

    with pytest.raises(ValueError, match="trainer: rank 1 has steps 3, expected steps 2 as rank 0"):
        weft.run_ranks(2, lambda world: body(world, steps=2 + world.rank))
    with pytest.raises(ValueError, match="trainer: rank 1 has learning rate 2, expected learning"):
        weft.run_ranks(
            2, lambda world: body(world, steps=2, schedule=lambda step: 1.0 + world.rank)
        )


def test_steps_of_which_no_target_counts_are_not_endless():
    rows = [(np.arange(SEQ), np.full(SEQ, -100))] * 4
    with pytest.raises(RuntimeError, match="3 steps in a row were skipped, expected at most 2"):
        bigram_run(rows, most_skipped=2)


def test_parameters_that_the_optimizer_lacks_do_not_count_for_clipping():
    model = Bigrams()
    model.materialize()
    norms = []

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 1})
        weft.fully_shard(model, mesh)
        sgd = optim.SGD([model.head.bias], lr=1e-9)

        def loss(ids, targets):
            return weft.sum(model(ids) * 1.0)

        trainer = weft.Trainer(
            model, masked_row, sgd, mesh, loss, batch=2, steps=3,
            on_step=lambda report: norms.append(report.gradient_norm),
        )  # fmt: skip
        trainer.run()

    weft.run_ranks(1, body)
    assert norms[0] == pytest.approx(norms[2], rel=1e-4)


def test_example_has_the_losses_of_pytorch():
    compare = ROOT / "tests" / "train" / "losses_of_example.py"
    example = ROOT / "examples" / "train_gpt.py"
    command = [compare, "trainer.json", "text", sys.executable, example]
    command += ["--text", ROOT / "LICENSE", "--init", GROUPED]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
