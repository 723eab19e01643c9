# SPDX-License-Identifier: Apache-2.0
"""`weft report`: what the page holds of metrics files, and that a browser opens it."""
import json
import math
import os
import re
import shutil
import subprocess

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
HOSTILE = "<!--<script></script><b>&\"x'"
DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.S)


def line(step, **more):
    return {"step": step, "loss": 4 / step, "val_loss": 5 / step if step % 10 == 0 else None,
            "lr": 1e-3, "grad_norm": 1.5, "tokens_per_second": 1000.0, "mfu": None,
            "seconds": 0.5 * step, "bytes_moved": 8, "peak_bytes": 3000,
            "peak_bytes_of": {"parameters": 2000, "activations": 1000},
            "seconds_of": {"data": 0.1, "update": 0.2}, **more}


def write(path, steps, **more):
    path.write_text("".join(json.dumps(line(step, **more)) + "\n" for step in steps))
    return path


def report(*arguments, code=0):
    done = subprocess.run([PROGRAM, "report", *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


def data_of(page):
    text = page.read_text()
    found = DATA.findall(text)
    assert len(found) == 1
    assert "<" not in found[0]
    return json.loads(found[0])["runs"]


def test_holds_the_values_of_each_run(tmp_path):
    write(tmp_path / "a.jsonl", range(1, 41))
    load = [[3, 1, 2], [2, 2, 2]]
    experts = {"load": load, "imbalance": 1.5, "dropped": 4, "balance_loss": None}
    (tmp_path / "b").mkdir()
    write(tmp_path / "b" / "metrics.jsonl", range(1, 21), experts=experts, accuracy=0.5)
    page = tmp_path / "page.html"
    assert report(tmp_path / "a.jsonl", tmp_path / "b", "-o", page) == ""
    a, b = data_of(page)
    assert [a["name"], b["name"]] == ["a", "b"]
    assert (a["first"], a["last"], a["lines"], a["notes"], a["load"]) == (1, 40, 40, [], [])
    loss = a["series"]["loss"]
    assert loss["x"] == list(range(1, 41))
    assert loss["y"] == pytest.approx([4 / step for step in range(1, 41)], rel=1e-6)
    assert loss["last"] == pytest.approx(0.1)
    assert a["series"]["val_loss"]["x"] == [10, 20, 30, 40]
    assert a["series"]["val_loss"]["minStep"] == 40
    assert "mfu" not in a["series"]
    assert a["series"]["peak_bytes_of.parameters"]["max"] == 2000
    assert a["series"]["seconds_of.update"]["mean"] == pytest.approx(0.2)
    assert b["load"] == load
    assert b["series"]["experts.imbalance"]["last"] == 1.5
    assert b["series"]["accuracy"]["mean"] == 0.5


def test_tells_of_skipped_steps(tmp_path):
    text = 'step,loss,skipped\n1,2,\n2,9,"the loss is 9, ""high"""\n3,2,\n'
    (tmp_path / "a.csv").write_text(text)
    said = report(tmp_path / "a.csv", "-o", tmp_path / "page.html")
    assert '1 step was skipped; the last was step 2: the loss is 9, "high"' in said


def test_reads_csv_as_json_lines(tmp_path):
    write(tmp_path / "a.jsonl", range(1, 31))
    names = ["step", "loss", "val_loss", "peak_bytes_of.parameters", 'a,"b"']
    rows = [names[:4] + ['"a,""b"""']]
    for step in range(1, 31):
        rows.append([step, 4 / step, 5 / step if step % 10 == 0 else "", 2000, 7])
    text = "\r\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "b.csv").write_text(text + "\r\n")
    report(tmp_path / "a.jsonl", tmp_path / "b.csv", "-o", tmp_path / "page.html")
    a, b = data_of(tmp_path / "page.html")
    assert b["series"].pop('a,"b"')["mean"] == 7
    assert b["series"] == {name: a["series"][name] for name in names[1:4]}


def test_many_steps_share_points_that_keep_extremes(tmp_path):
    steps = 20000
    values = [math.sin(step / 1000) + (9 if step == 7777 else 0) for step in range(1, steps + 1)]
    (tmp_path / "a.jsonl").write_text("".join(
        json.dumps({"step": i + 1, "loss": value}) + "\n" for i, value in enumerate(values)))
    report(tmp_path / "a.jsonl", "-o", tmp_path / "page.html")
    loss = data_of(tmp_path / "page.html")[0]["series"]["loss"]
    assert loss["width"] == 32
    assert 500 <= len(loss["x"]) <= 1000
    assert loss["max"] == max(loss["hi"]) == pytest.approx(max(values), rel=1e-6)
    assert loss["mean"] == pytest.approx(sum(values) / steps, abs=1e-6)
    at = next(i for i, x in enumerate(loss["x"]) if x > 7777 - 16)
    # Buckets hold the steps [32 i, 32 (i + 1)).
    assert loss["y"][at] == pytest.approx(sum(values[7775:7807]) / 32, rel=1e-6)
    assert loss["lo"][at] < loss["y"][at] < loss["hi"][at] == loss["max"]


def test_time_goes_on_in_a_resumed_run(tmp_path):
    lines = [line(step) for step in range(1, 5)]
    lines += [line(step, seconds=0.5 * (step - 4)) for step in range(5, 9)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    report(tmp_path / "a.jsonl", "-o", tmp_path / "page.html")
    seconds = data_of(tmp_path / "page.html")[0]["series"]["seconds"]
    assert seconds["y"] == [0.5 * step for step in range(1, 9)]


def test_reports_lines_that_it_leaves_out(tmp_path):
    good = [json.dumps(line(step)) for step in (1, 2, 3, 3, 4)]
    text = "\n".join([good[0], "", "not json", '{"loss": 1}', *good[1:], good[0][:30]])
    (tmp_path / "a.jsonl").write_text(text)
    said = report(tmp_path / "a.jsonl", "-o", tmp_path / "page.html")
    notes = ["2 lines are not metrics and were left out (the first: line 3)",
             "1 line repeats a step or goes back, and shares its place (line 7)",
             "the last line is torn and was left out"]
    assert data_of(tmp_path / "page.html")[0]["notes"] == notes
    for note in notes:
        assert note in said
    (tmp_path / "b.csv").write_text("step,loss\n1,2\n2,3,4\nx,1\n3,1")
    said = report(tmp_path / "b.csv", "-o", tmp_path / "page.html")
    assert "2 lines are not metrics and were left out (the first: line 3)" in said
    assert data_of(tmp_path / "page.html")[0]["series"]["loss"]["x"] == [1, 3]
    many = {f"m{i}": i for i in range(450)}
    write(tmp_path / "c.jsonl", [1], **many)
    said = report(tmp_path / "c.jsonl", "-o", tmp_path / "page.html")
    assert "metrics after the first 400 were left out" in said


def test_names_what_is_wrong(tmp_path):
    good, page = write(tmp_path / "a.jsonl", [1]), tmp_path / "page.html"
    empty, two = tmp_path / "empty", tmp_path / "two"
    empty.mkdir()
    two.mkdir()
    write(two / "x.jsonl", [1])
    write(two / "y.csv", [1])
    (tmp_path / "text.txt").write_text("no metrics\nat all\n")
    (tmp_path / "long").write_text("{" + " " * (17 << 20))
    for arguments, words in [
            ([tmp_path / "none.jsonl"], "none.jsonl"),
            ([empty], "empty holds no metrics, expected metrics.jsonl or a file like it; "),
            ([two], "two holds 2 files of metrics, expected one; name"),
            ([tmp_path / "text.txt"], "text.txt holds no line with a step, expected"),
            ([tmp_path / "long"], "line 1 has over 16777216 bytes, expected lines of --metrics"),
            ([good, tmp_path / "." / "a.jsonl"], "a.jsonl is given twice, expected each run once"),
            ([good, "-o", good], "is also one of the runs, expected another file"),
            ([good, "-o", tmp_path / "no" / "page.html"], "--out"),
            ([good, "-o", ""], "is empty, expected at least one byte"),
            ([], "runs is required")]:
        said = report(*arguments, *([] if "-o" in arguments else ["-o", page]), code=2)
        assert words in said, said
        assert not page.exists()
    assert good.read_text() == json.dumps(line(1)) + "\n"


def test_replaces_reports_only(tmp_path):
    good, page = write(tmp_path / "a.jsonl", [1]), tmp_path / "page.html"
    report(good, "-o", page)
    assert report(good, "-o", page) == ""
    page.write_text("mine")
    assert "is now" in report(good, "-o", page)
    assert (tmp_path / "page.html.1").read_text() == "mine"


def test_hostile_names_are_text(tmp_path):
    folder = tmp_path / HOSTILE.replace("/", "\u2215")
    folder.mkdir()
    write(folder / "metrics.jsonl", [1, 2], **{HOSTILE: 1})
    write(tmp_path / "a.jsonl", [1])
    page = tmp_path / "page.html"
    report(folder, tmp_path / "a.jsonl", "-o", page)
    run = data_of(page)[0]
    assert run["name"] == folder.name
    assert run["series"][HOSTILE]["mean"] == 1
    text = page.read_text()
    assert text.count("<script") == text.count("</script>") == 2
    assert not re.search(r'(src|href)=|@import|url\(', text), "the page would load something"
    names = os.fsencode(tmp_path) + b"/\xff.jsonl"
    shutil.copy(tmp_path / "a.jsonl", names)
    report(os.fsdecode(names), "-o", page)
    assert data_of(page)[0]["name"] == "\ufffd"


def test_a_browser_draws_it(tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser",
                                                   "google-chrome"))), None)
    if browser is None:
        pytest.skip("chromium is not installed")
    experts = {"load": [[3, 1], [2, 2]], "imbalance": 1.5, "dropped": 4, "balance_loss": 1.1}
    folder = tmp_path / HOSTILE.replace("/", "\u2215")
    folder.mkdir()
    write(folder / "metrics.jsonl", range(1, 41), experts=experts, accuracy=0.5)
    write(tmp_path / "a.jsonl", range(1, 3000))
    page = tmp_path / "page.html"
    report(folder, tmp_path / "a.jsonl", "-o", page)
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/b",
         "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=False)
    assert "CONSOLE" not in done.stderr, done.stderr
    drawn = done.stdout
    for metric in ("loss", "val_loss", "lr", "grad_norm", "tokens_per_second", "peak_bytes",
                   "experts.imbalance", "accuracy"):
        card = drawn.split(f'data-metric="{metric}"')[1].split("data-metric")[0]
        assert "<polyline" in card, metric
    for words in ("Time by part of a step", "Peak memory by purpose", "2 training runs",
                  "Load of experts", "<polygon"):
        assert words in drawn
    assert "NaN" not in drawn.split("</script>")[-1]
