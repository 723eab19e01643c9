# SPDX-License-Identifier: Apache-2.0
"""Saves to, resumes from and reads from S3 servers that others wrote (tests/stores/run)."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import boto3
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
from object_store_test import MODEL, SAVER, losses  # noqa: E402

PROGRAM = os.environ["WEFT_PROGRAM"]
KILLS = int(os.environ.get("WEFT_TEST_KILLS", "10"))
HERE = Path(__file__).parent


class Swift:
    """Its s3api refuses puts under a condition by status 501."""

    has_conditions = False
    wrong_key = "the secret key is not that of the access key"

    def __init__(self):
        root = os.environ["WEFT_SWIFT_ROOT"]
        subprocess.Popen([HERE / "swift", root], stdout=subprocess.DEVNULL)
        self.variables = {"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing",
                          "AWS_ENDPOINT_URL": "http://127.0.0.1:8080"}  # fmt: skip


class Moto:
    """Checks signatures after the requests that make a user."""

    has_conditions = True
    wrong_key = "does not know the access key"

    def __init__(self):
        os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"
        from moto.server import ThreadedMotoServer

        ThreadedMotoServer(port=5000, verbose=False).start()
        url = "http://127.0.0.1:5000"
        iam = boto3.client("iam", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x",
                           aws_secret_access_key="y")  # fmt: skip
        iam.create_user(UserName="user")
        key = iam.create_access_key(UserName="user")["AccessKey"]
        all_ = {"Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}  # fmt: skip
        iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(all_))
        self.variables = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"],
                          "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
                          "AWS_ENDPOINT_URL": url}  # fmt: skip


@pytest.fixture(scope="module", params=[Moto, Swift])
def server(request):
    made = request.param()
    made.variables |= {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    made.environment = os.environ | made.variables
    made.client = boto3.client(
        "s3", endpoint_url=made.variables["AWS_ENDPOINT_URL"], region_name="us-east-1",
        aws_access_key_id=made.variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=made.variables["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip
    for attempt in range(60):
        try:
            made.client.create_bucket(Bucket="bucket")
            break
        except Exception:
            if attempt == 59:
                raise
            time.sleep(1)
    return made


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    lines = "".join(f"line {i} of a text that repeats itself\n" for i in range(400))
    (tmp_path / "text.txt").write_text(lines)
    return tmp_path


def run(server, *command, code=0, **variables):
    done = subprocess.run(
        [str(part) for part in command], env=server.environment | variables, text=True,
        timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stdout
    return done.stdout


def train(server, model, *flags, data=None, code=0):
    return run(server, PROGRAM, "train", "--data", data or model / "text.txt", "--model",
               model / "model.json", "--batch", 12, "--seq", 16, *flags, code=code)  # fmt: skip


def keys(server, prefix):
    pages = server.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
    return [found["Key"] for page in pages for found in page.get("Contents", [])]


def steps_in(server, prefix):
    return sorted({key.split("/")[1] for key in keys(server, prefix + "/") if "/step-" in key})


def test_resumes_on_another_mesh(server, model):
    server.client.upload_file(str(model / "text.txt"), "bucket", "data/a text.txt")
    train(server, model, "--ranks", 2, "--steps", 8, "--metrics", model / "whole.jsonl")
    out = train(server, model, "--ranks", 2, "--steps", 8, "--save", "s3://bucket/run",
                "--save-every", 2, "--keep", 1, "--metrics", model / "saved.jsonl",
                data="s3://bucket/data")  # fmt: skip
    assert ("the store ignores conditional writes" in out) != server.has_conditions
    whole = losses(model / "whole.jsonl")
    assert losses(model / "saved.jsonl") == whole
    kept = steps_in(server, "run")
    assert [name[:13] for name in kept] == ["step-00000006", "step-00000008"]
    for command in "ls", "verify":
        out = run(server, PROGRAM, "ckpt", command, "s3://bucket/run")
        assert (out.count("COMPLETE"), out.count("INCOMPLETE")) == (2, 0), out
    run(server, PROGRAM, "ckpt", "export", "s3://bucket/run", model / "out")
    assert (model / "out/model.safetensors").exists()
    train(server, model, "--mesh", "dp=3", "--steps", 8, "--resume", f"s3://bucket/run/{kept[0]}",
          "--save", "s3://bucket/other", "--metrics", model / "more.jsonl")  # fmt: skip
    more = losses(model / "more.jsonl")
    assert sorted(more) == [7, 8]
    for step, loss in more.items():
        assert loss == pytest.approx(whole[step], rel=1e-5)


def test_names_what_is_wrong(server):
    def told(path="s3://bucket/a", **variables):
        text = run(server, PROGRAM, "ckpt", "ls", path, code=None, **variables)
        assert text.count("\n") == 1, text
        return text

    assert server.wrong_key in told(AWS_ACCESS_KEY_ID="NO")
    text = told(AWS_SECRET_ACCESS_KEY="NO")
    assert "the secret key is not that of the access key" in text
    assert 'bucket "other" does not exist' in told("s3://other/a")
    assert "s3://bucket/a does not exist" in told()


def test_keeps_two_jobs_apart(server, model):
    flags = ["--save", "s3://bucket/lease", "--lease-seconds", 4]
    command = [PROGRAM, "train", "--data", model / "text.txt", "--model", model / "model.json",
               "--batch", 12, "--seq", 16, *flags, "--steps", 100000]  # fmt: skip
    first = subprocess.Popen([str(part) for part in command], env=server.environment,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        while not keys(server, "lease/"):
            time.sleep(0.1)
        out = train(server, model, *flags, "--steps", 1, code=2)
        assert "is being saved to by process" in out
    finally:
        first.kill()
        first.wait()
    train(server, model, *flags, "--steps", 1)


def killed_save(server, path, newest, seconds):
    """Saves until it ends or, after so many seconds, is killed; true if it was."""
    child = subprocess.Popen([sys.executable, "-c", SAVER, path, str(newest)],
                             env=server.environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert child.stdout.readline().startswith("begins"), child.stderr.read()
    timer = threading.Timer(seconds, child.kill)
    timer.start()
    _, errors = child.communicate(timeout=300)
    timer.cancel()
    assert child.returncode in (0, -signal.SIGKILL), errors
    return child.returncode != 0


CHECK = """
import sys, weft
found = weft.newest_complete_checkpoint(sys.argv[1])
report = weft.inspect_checkpoint(found)
assert report["verdict"] == "COMPLETE", report
step = report["step"]
rows = 10_001 if step % 2 == 0 else 101
x = weft.zeros((rows, 1000))
weft.load(found, weft.StateDict({"x": x}))
assert (x == weft.arange(rows * 1000.0).reshape((rows, 1000)) + step).all().item()
print(step)
"""


def test_survives_kills_at_any_time(server):
    path, draw = "s3://bucket/killed", random.Random(7)
    begin = time.monotonic()
    killed_save(server, path, 0, 300)
    whole = time.monotonic() - begin
    newest, kills = 4, 0
    for _ in range(KILLS):
        kills += killed_save(server, path, newest, draw.uniform(0, whole))
        step = int(run(server, sys.executable, "-c", CHECK, path))
        assert step >= newest
        newest = step
    assert kills > KILLS // 3
    assert not killed_save(server, path, newest, 300)
    # Nothing of the killed ones is left behind.
    assert not server.client.list_multipart_uploads(Bucket="bucket").get("Uploads")
    assert len(steps_in(server, "killed")) <= 4
