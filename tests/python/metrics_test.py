# SPDX-License-Identifier: Apache-2.0
"""`weft train --metrics` as JSON lines, CSV and TensorBoard's event files, also of resumed runs."""
import csv
import json
import math
import os
import struct
import subprocess

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
# A record that TensorBoard 2.21's RecordWriter wrote: the scalar "loss" is 2.5 at step 300, at the
# wall time 1.5. Made by tests/reference/make_event_record.py.
REFERENCE = bytes.fromhex(
    "1b000000000000001a0d9e1309000000000000f83f10ac022a0d0a0b0a046c6f"
    "7373150000204068997c51")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(message):
    """The fields of a message of Protocol Buffers: (number, value)."""
    at, found = 0, []
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
        elif kind == 2:
            size, at = varint(message, at)
            value, at = message[at:at + size], at + size
        else:
            form, size = {1: ("<d", 8), 5: ("<f", 4)}[kind]
            value, at = struct.unpack(form, message[at:at + size])[0], at + size
        found.append((key >> 3, value))
    assert at == len(message)
    return found


def messages(data):
    """The messages of a file of records, whose sums it checks."""
    at = 0
    while at < len(data):
        length = data[at:at + 8]
        size = struct.unpack("<Q", length)[0]
        message = data[at + 12:at + 12 + size]
        assert data[at + 8:at + 12] == masked(length)
        assert data[at + 12 + size:at + 16 + size] == masked(message)
        yield message
        at += 16 + size


def record(message):
    length = struct.pack("<Q", len(message))
    return length + masked(length) + message + masked(message)


def events(data):
    """The events of a file: their fields, with summaries as {tag: value}."""
    found = []
    for message in messages(data):
        event = dict(fields(message))
        if 5 in event:
            values = [dict(fields(value)) for _, value in fields(event[5])]
            event[5] = {value[1].decode(): value[2] for value in values}
        found.append(event)
    return found


def event_files(directory):
    return sorted(directory.glob("events.out.tfevents.*"))


def train(folder, *arguments, code=0):
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "text").write_text("a text that repeats itself\n" * 200)
    command = [PROGRAM, "train", "--data", folder / "data", "--model", "tiny", "--batch", "4",
               "--seq", "16", "--lr", "1e-3", "--threads", "1", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


def flat(line, separator, prefix=""):
    """The numbers of a line by their joined names, without lists."""
    found = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found.update(flat(value, separator, prefix + name + separator))
        elif not isinstance(value, list):
            found[prefix + name] = value
    return found


def check_equal(folder, steps):
    """Expects the same in all three destinations."""
    lines = [json.loads(text) for text in (folder / "m.jsonl").read_text().splitlines()]
    rows = list(csv.DictReader((folder / "m.csv").read_text().splitlines()))
    assert [line["step"] for line in lines] == steps
    assert [int(row["step"]) for row in rows] == steps
    for line, row in zip(lines, rows):
        expected = flat(line, ".")
        rare = {"loss_scale", "skipped"} - set(line)  # columns of what most steps lack
        assert {n for n in row if not n.startswith("experts.")} == set(expected) | rare
        for name, value in expected.items():
            assert row[name] == ("" if value is None else str(value)) or float(row[name]) == value
    return lines


def test_reads_what_tensorboard_wrote():
    assert b"".join(map(record, messages(REFERENCE))) == REFERENCE
    event, = events(REFERENCE)
    assert (event[1], event[2], event[5]) == (1.5, 300, {"loss": 2.5})


def test_three_destinations_of_one_run(tmp_path):
    train(tmp_path, "--steps", 10, "--ranks", 2, "--metrics", tmp_path / "m.jsonl",
          tmp_path / "m.csv", "--metrics", f"tensorboard:{tmp_path}/events")
    lines = check_equal(tmp_path, list(range(1, 11)))
    for line in lines:
        parts = line["seconds_of"]
        assert list(parts) == ["data", "forward_backward", "update", "validation", "save",
                               "collectives"]
        assert parts["data"] > 0 and parts["forward_backward"] > 0 and parts["update"] > 0
        assert (parts["validation"] > 0) == (line["val_loss"] is not None)
        assert 0 < parts["collectives"] < sum(list(parts.values())[:3])
    file, = event_files(tmp_path / "events")
    version, start, *steps = events(file.read_bytes())
    assert version[3] == b"brain.Event:2"
    assert (start[2], start[7]) == (1, b"\x08\x01")
    assert [step[2] for step in steps] == list(range(1, 11))
    for step, line in zip(steps, lines):
        expected = {name: value for name, value in flat(line, "/").items()
                    if name != "step" and value is not None}
        assert set(step[5]) == set(expected)
        for name, value in expected.items():
            assert step[5][name] == pytest.approx(value, rel=1e-6, abs=1e-30)
        assert abs(step[1] - version[1]) < 120


def test_resumed_runs_continue_after_their_step(tmp_path):
    same = ["--ranks", 1, "--save", tmp_path / "run", "--resume", tmp_path / "run", "--metrics",
            tmp_path / "m.jsonl", tmp_path / "m.csv", f"{tmp_path}/events/"]
    train(tmp_path, "--steps", 4, *same)
    first = check_equal(tmp_path, [1, 2, 3, 4])
    # The files look as if the program had died in step 7, whose lines are torn.
    for name, torn in [("m.jsonl", '{"step":7,"lo'), ("m.csv", "7,0.1")]:
        text = (tmp_path / name).read_text()
        last = text.splitlines()[-1]
        for step in (5, 6):
            later = last.replace('"step":4', f'"step":{step}')
            text += (later if name == "m.jsonl" else f"{step}{last[1:]}") + "\n"
        (tmp_path / name).write_text(text + torn)
    file, = event_files(tmp_path / "events")
    data = file.read_bytes()
    last = events(data)[-1]
    assert last[2] == 4
    file.write_bytes(data + data[-50:-7])  # torn
    said = train(tmp_path, "--steps", 8, *same)
    assert said.count("removed 3 lines after step 4, from which the run goes on") == 2
    lines = check_equal(tmp_path, list(range(1, 9)))
    assert lines[:4] == first
    old, new = event_files(tmp_path / "events")
    assert old == file
    found = events(new.read_bytes())
    assert (found[1][2], found[1][7]) == (5, b"\x08\x01")
    assert [event[2] for event in found[2:]] == [5, 6, 7, 8]


def test_tells_why_a_step_was_skipped(tmp_path):
    skips = ["--steps", 10, "--spike-threshold", 0.1, "--on-spike", "skip"]
    train(tmp_path, *skips, "--metrics", tmp_path / "m.csv", tmp_path / "m.jsonl")
    rows = list(csv.DictReader((tmp_path / "m.csv").read_text().splitlines()))
    reasons = [json.loads(line).get("skipped", "") for line in open(tmp_path / "m.jsonl")]
    assert [row["skipped"] for row in rows] == reasons
    assert reasons[7] == "" and ", the median of the last ones, the largest" in reasons[8]


def test_a_file_of_an_older_version_keeps_its_columns(tmp_path):
    same = ["--save", tmp_path / "run", "--resume", tmp_path / "run", "--metrics",
            tmp_path / "m.csv"]
    train(tmp_path, "--steps", 2, *same)
    lines = [line.rsplit(",", 2)[0] for line in (tmp_path / "m.csv").read_text().splitlines()]
    assert lines[0].endswith("seconds_of.collectives")
    (tmp_path / "m.csv").write_text("\n".join(lines) + "\n")
    train(tmp_path, "--steps", 3, *same)
    after = (tmp_path / "m.csv").read_text().splitlines()
    assert after[:3] == lines and after[3].startswith("3,")
    assert after[3].count(",") == lines[0].count(",")


def test_a_new_run_sets_files_aside_and_hides_events(tmp_path):
    same = ["--steps", 2, "--metrics", tmp_path / "m.jsonl", tmp_path / "m.csv",
            f"tensorboard:{tmp_path}/events"]
    train(tmp_path, *same)
    before = (tmp_path / "m.csv").read_text()
    said = train(tmp_path, *same)
    assert said.count("the file of an earlier run is now") == 2
    assert "has events of an earlier run, which TensorBoard hides from step 1 on" in said
    assert (tmp_path / "m.csv.1").read_text() == before
    check_equal(tmp_path, [1, 2])
    assert len(event_files(tmp_path / "events")) == 2


def test_names_what_is_wrong(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "other.csv").write_text("step,accuracy\n1,2\n")
    train(tmp_path, "--steps", 1, "--save", tmp_path / "run")
    for arguments, words in [
            (["tensorboard:"], '--metrics is "tensorboard:", expected a file or tensorboard:DIR'),
            ([f"tensorboard:{tmp_path}/file"], "cannot be made ("),
            ([tmp_path / "a.csv", tmp_path / "." / "a.csv"], "is also the file of --metrics"),
            ([f"tensorboard:{tmp_path}/data/events"], "is within --data"),
            ([tmp_path / "other.csv"], 'begins with "step,accuracy", expected the columns "step,')]:
        said = train(tmp_path, "--steps", 2, "--resume", tmp_path / "run", "--metrics",
                     *arguments, code=2)
        assert words in said, said
    assert (tmp_path / "other.csv").read_text() == "step,accuracy\n1,2\n"


def test_tensorboard_reads_the_events(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                       reason="tensorboard is not installed")
    same = ["--save", tmp_path / "run", "--resume", tmp_path / "run", "--metrics",
            tmp_path / "m.jsonl", f"{tmp_path}/events/"]
    train(tmp_path, "--steps", 4, *same)
    # Steps 5 and 6 of a run that died before it saved them.
    file, = event_files(tmp_path / "events")
    data = file.read_bytes()
    last = bytearray(list(messages(data))[-1])
    assert last[9:11] == b"\x10\x04"
    torn = b""
    for last[10] in (5, 6):
        torn += record(bytes(last))
    file.write_bytes(data + torn + torn[:40])
    train(tmp_path, "--steps", 8, *same)
    accumulator = accumulators.EventAccumulator(str(tmp_path / "events"))
    accumulator.Reload()
    lines = [json.loads(text) for text in (tmp_path / "m.jsonl").read_text().splitlines()]
    for name in ("loss", "val_loss", "lr", "seconds_of/update", "peak_bytes_of/parameters"):
        expected = [(line["step"], flat(line, "/")[name]) for line in lines]
        read = [(scalar.step, scalar.value) for scalar in accumulator.Scalars(name)]
        expected = [(step, value) for step, value in expected if value is not None]
        assert [step for step, _ in read] == [step for step, _ in expected]
        for (_, value), (_, other) in zip(read, expected):
            assert math.isclose(value, other, rel_tol=1e-6)
