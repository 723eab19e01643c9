# SPDX-License-Identifier: Apache-2.0
"""Runs that save to, resume from and read data from an object store."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = os.environ["WEFT_PROGRAM"]
SERVER = Path(__file__).parent.parent / "support/s3_server.py"
KILLS = int(os.environ.get("WEFT_TEST_KILLS", "20"))
SEED = int(os.environ.get("WEFT_TEST_SEED", "7"))
MODEL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


class Server:
    """The server of tests/support in a process, and the environment of its clients."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, SERVER], stdout=subprocess.PIPE, text=True)
        _, port, environment = self.process.stdout.readline().split(" ", 2)
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {"HOME": "/nonexistent", "WEFT_S3_DEADLINE": "20"}
        self.environment |= json.loads(environment)

    def control(self, **what):
        body = json.dumps(what).encode()
        with urllib.request.urlopen(self.url + "/_control", data=body) as answer:
            return json.loads(answer.read())


def run(server, *command, **variables):
    """The exit code and all that the program printed."""
    environment = os.environ | server.environment | variables
    done = subprocess.run(
        [str(part) for part in command], env=environment, text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    return done.returncode, done.stdout


class Page(BaseHTTPRequestHandler):
    """Answers with a page, as a proxy or a console would."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Sign in</html>")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.process.kill()


@pytest.fixture(autouse=True)
def calm(server):
    server.control(faults={}, clock=0, conditional=True, token="", kill=None, paused=False)
    server.control(reset=True)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    lines = "".join(f"line {i} of a text that repeats itself\n" for i in range(400))
    (tmp_path / "text.txt").write_text(lines)
    return tmp_path


def train(server, model, *flags, data=None, code=0, **variables):
    done, out = run(
        server, PROGRAM, "train", "--data", data or model / "text.txt", "--model",
        model / "model.json", "--batch", 12, "--seq", 16, *flags, **variables
    )  # fmt: skip
    assert done == code, out
    return out


def losses(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def steps_in(server, run_path):
    """The checkpoints of a run, oldest first."""
    prefix = run_path.removeprefix("s3://bucket/") + "/"
    keys = server.control()["objects"]["bucket"]
    names = {key.removeprefix(prefix).split("/")[0] for key in keys if key.startswith(prefix)}
    return sorted(name for name in names if name.startswith("step-"))


def test_resumes_on_another_mesh(server, model):
    run_path = "s3://bucket/runs/a"
    train(server, model, "--ranks", 2, "--steps", 8, "--metrics", model / "whole.jsonl")
    train(server, model, "--ranks", 2, "--steps", 8, "--save", run_path, "--save-every", 2,
          "--keep", 1, "--metrics", model / "saved.jsonl")  # fmt: skip
    whole = losses(model / "whole.jsonl")
    assert losses(model / "saved.jsonl") == whole
    code, out = run(server, PROGRAM, "ckpt", "ls", run_path)
    assert (code, out.count("COMPLETE"), out.count("INCOMPLETE")) == (0, 2, 0), out
    code, out = run(server, PROGRAM, "ckpt", "verify", run_path)
    assert (code, out.count("COMPLETE")) == (0, 2), out
    kept = steps_in(server, run_path)
    assert [name[:13] for name in kept] == ["step-00000006", "step-00000008"]
    assert not server.control()["uploads"]

    out = train(server, model, "--mesh", "dp=3", "--steps", 8, "--resume", f"{run_path}/{kept[0]}",
                "--save", "s3://bucket/b", "--metrics", model / "more.jsonl")  # fmt: skip
    assert f"resumed from {run_path}/{kept[0]} after step 6" in out
    more = losses(model / "more.jsonl")
    assert sorted(more) == [7, 8]
    for step, loss in more.items():
        assert loss == pytest.approx(whole[step], rel=1e-5)
    out = train(server, model, "--ranks", 2, "--steps", 8, "--resume", run_path, "--save", run_path)
    assert f"resumed from {run_path}/{kept[1]} after step 8" in out
    out = train(server, model, "--steps", 9, "--save", run_path, code=2)
    assert f"--save {run_path} holds 2 checkpoints of another run" in out


def test_exports_and_samples(server, model):
    run_path = "s3://bucket/a"
    train(server, model, "--ranks", 2, "--steps", 2, "--save", run_path)
    out = model / "out"
    code, text = run(server, PROGRAM, "ckpt", "export", run_path, out)
    assert code == 0 and (out / "model.safetensors").exists(), text
    code, text = run(server, PROGRAM, "sample", run_path, "--prompt", "line", "--tokens", 4)
    assert code == 0, text
    code, text = run(server, PROGRAM, "ckpt", "reshard", run_path, "s3://bucket/b", "--ranks", 3)
    assert code == 0, text
    code, text = run(server, PROGRAM, "ckpt", "diff", run_path, "s3://bucket/b")
    assert code == 0 and ", 0 differences" in text, text


def test_reads_data(server, model):
    text = (model / "text.txt").read_text()
    rows = "".join(json.dumps({"text": line}) + "\n" for line in text.splitlines())
    server.control(put={"data/part 1+2.txt": text, "data/.hidden/x.txt": "no", "rows.jsonl": rows})
    for key, local in (("data", "text.txt"), ("data/part 1+2.txt", "text.txt")):
        there, here = model / "there.jsonl", model / "here.jsonl"
        train(server, model, "--steps", 2, "--metrics", there, data=f"s3://bucket/{key}")
        train(server, model, "--steps", 2, "--metrics", here, data=model / local)
        assert losses(there) == losses(here)
        there.unlink(), here.unlink()
    out = train(server, model, "--steps", 1, data="s3://bucket/rows.jsonl", code=2)
    assert "s3://bucket/rows.jsonl is lines of JSON" in out
    out = train(server, model, "--steps", 1, data="s3://bucket/none.txt", code=2)
    assert "data: cannot open s3://bucket/none.txt: no such object" in out
    out = train(server, model, "--save", "s3://bucket/data/run", data="s3://bucket/data", code=2)
    assert "--save s3://bucket/data/run is within --data s3://bucket/data" in out


def test_reads_token_shards_in_pieces(server, model):
    tokens = [(7 * i + i // 250) % 250 for i in range(1_000_000)]
    header = struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253)
    shard = header + struct.pack(f"<{len(tokens)}H", *tokens)
    (model / "tokens.bin").write_bytes(shard)
    server.control(put={"tokens.bin": shard.decode("latin-1")}, encoding="latin-1")
    there, here = model / "there.jsonl", model / "here.jsonl"
    train(server, model, "--steps", 3, "--metrics", here, data=model / "tokens.bin")
    server.control(faults={"truncate": 0.2, "reset": 0.1, "503": 0.1})
    train(server, model, "--steps", 3, "--metrics", there, data="s3://bucket/tokens.bin")
    assert losses(there) == losses(here)


@pytest.mark.parametrize("kind", ["500", "503", "429", "truncate", "slow", "reset", "lost"])
def test_survives_faults(server, model, kind):
    server.control(faults={kind: 0.2})
    train(server, model, "--ranks", 2, "--steps", 3, "--save", "s3://bucket/a", "--save-every", 1,
          "--keep", 1)  # fmt: skip
    code, out = run(server, PROGRAM, "ckpt", "verify", "s3://bucket/a")
    assert (code, out.count("COMPLETE"), out.count("INCOMPLETE")) == (0, 2, 0), out
    assert server.control()["injected"][kind] > 3


def test_survives_wrong_answers_of_uploads(server):
    server.control(faults={"etag": 0.3, "complete200": 0.5, "lost": 0.1})
    code, out = run(server, sys.executable, "-c", SAVER, "s3://bucket/a", "0")
    assert code == 0, out
    server.control(faults={})
    for name in steps_in(server, "s3://bucket/a"):
        code, out = run(server, PROGRAM, "ckpt", "verify", f"s3://bucket/a/{name}")
        assert code == 0, out


def test_names_what_is_wrong(server, tmp_path):
    def told(path="s3://bucket/a", **variables):
        code, out = run(server, PROGRAM, "ckpt", "ls", path, **variables)
        assert code != 0 and out.count("\n") == 1, out
        return out

    assert 'does not know the access key "NO"' in told(AWS_ACCESS_KEY_ID="NO")
    text = told(AWS_SECRET_ACCESS_KEY="NO")
    assert "the secret key is not that of the access key" in text
    assert 'bucket "other" does not exist' in told("s3://other/a")
    text = told(AWS_REGION="eu-west-1")
    assert "is in region us-east-1, but the region is eu-west-1; set AWS_REGION=us-east-1" in text
    assert "cannot be reached" in told(AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert "expected http:// or https://" in told(AWS_ENDPOINT_URL="127.0.0.1:9")
    assert "the endpoint has a user name" in told(AWS_ENDPOINT_URL="http://a:b@127.0.0.1:9")
    assert "no credentials found" in told(AWS_ACCESS_KEY_ID="")
    assert "WEFT_S3_DEADLINE is" in told(WEFT_S3_DEADLINE="soon")
    assert "expected s3://bucket/key" in told("s3://")
    assert "s3://bucket/a does not exist" in told()
    server.control(token="of a session")
    assert "denies GET" in told()
    assert "does not exist" in told(AWS_SESSION_TOKEN="of a session")
    server.control(token="", clock=5000)
    assert "the clock of this machine differs" in told()
    server.control(clock=0, faults={"503": 1})
    assert "at last by status 503, SlowDown" in told(WEFT_S3_DEADLINE="1")
    server.control(faults={"truncate": 1})
    assert "failed" in told(WEFT_S3_DEADLINE="1")
    server.control(faults={})
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        text = told(AWS_ENDPOINT_URL=f"http://127.0.0.1:{page.server_port}")
        assert "the answer to a listing is not a ListBucketResult" in text
        page.shutdown()


def test_reads_credentials_from_files(server, tmp_path):
    secret, config = tmp_path / "credentials", tmp_path / "config"
    secret.write_text(
        "[default]\naws_access_key_id = no\n\n[mine]\n# a comment\n"
        "aws_access_key_id=AKIATEST\naws_secret_access_key = secret/of+tests\n"
    )
    config.write_text(
        f"[profile mine]\nregion = us-east-1\ns3 =\n  region = no\nendpoint_url = {server.url}/\n"
    )
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(secret), "AWS_CONFIG_FILE": str(config)}
    none = {name: "" for name in server.environment if name.startswith("AWS_")}
    code, out = run(server, PROGRAM, "ckpt", "ls", "s3://bucket/a", AWS_PROFILE="mine",
                    **(none | files))  # fmt: skip
    assert "s3://bucket/a does not exist" in out


def test_orders_equal_steps_by_when_they_were_written(server):
    for generation in "f", "a":
        time.sleep(1.1)  # times of objects have whole seconds
        server.control(put={f"a/step-00000005-{generation * 16}/x.txt": "aGk="})
    code, out = run(server, PROGRAM, "ckpt", "ls", "s3://bucket/a")
    assert code == 0 and 0 < out.find("a" * 16) < out.find("f" * 16), out


def test_keeps_two_jobs_apart(server, model):
    environment = os.environ | server.environment
    flags = ["--data", model / "text.txt", "--model", model / "model.json", "--batch", 12, "--seq",
             16, "--save", "s3://bucket/a", "--lease-seconds", 4]  # fmt: skip
    long = [PROGRAM, "train", *flags, "--steps", 100000]
    first = subprocess.Popen([str(part) for part in long], env=environment,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        while not server.control()["objects"]["bucket"]:
            time.sleep(0.05)
        # On this host the process would be seen to live; another host sees the lease renewed.
        code, out = run(server, PROGRAM, "train", *flags, "--steps", 1)
        assert code == 2 and "is being saved to by process" in out, out
    finally:
        first.kill()
        first.wait()
    code, out = run(server, PROGRAM, "train", *flags, "--steps", 1)
    assert code == 0, out
    for conditional in False, "refused":
        server.control(conditional=conditional, reset=True)
        code, out = run(server, PROGRAM, "train", *flags, "--steps", 1)
        assert code == 0 and "the store ignores conditional writes" in out, out


SAVER = """
import sys, weft
path, first = sys.argv[1], int(sys.argv[2])
def body(world):
    mesh = weft.DeviceMesh(world, [("dp", world.size)])
    saver = weft.CheckpointSaver(world, path, keep=2, continues=first > 0, lease_seconds=1)
    print("begins", flush=True)
    for step in range(first + 1, first + 5):
        # Even steps are uploaded in parts.
        rows = 10_001 if step % 2 == 0 else 101
        whole = weft.arange(rows * 1000.0).reshape((rows, 1000)) + step
        x = weft.distribute(whole, mesh, [weft.Shard(0)])
        saver.save(step, weft.StateDict({"x": x}))
        world.barrier()
    print("done", flush=True)
weft.run_ranks(2, body)
"""


ASYNC = """
import sys, json, urllib.request, weft
def control(**what):
    urllib.request.urlopen(sys.argv[2] + "/_control", data=json.dumps(what).encode()).read()
def body(world):
    x = weft.arange(5_000_000.0)
    saver = weft.CheckpointSaver(world, sys.argv[1], keep=1)
    for step in range(1, 4):
        control(paused=True)
        path = saver.save_async(step, weft.StateDict({"x": x}))
        assert saver.is_saving
        x += 1
        control(paused=False)
        saver.wait()
    x = weft.zeros(5_000_000)
    weft.load(path, weft.StateDict({"x": x}))
    assert (x == weft.arange(5_000_000.0) + 2).all().item()
weft.run_ranks(1, body)
"""


def test_training_does_not_wait_for_requests(server):
    """No request is answered before `save_async` has returned."""
    code, out = run(server, sys.executable, "-c", ASYNC, "s3://bucket/a", server.url)
    assert code == 0, out


def test_survives_kills_at_any_request(server, tmp_path):
    import weft

    os.environ.update(server.environment)
    path, draw = "s3://bucket/killed", random.Random(SEED)
    newest, kills, finished = 0, 0, 0
    for attempt in range(KILLS):
        command = [sys.executable, "-c", SAVER, path, str(newest)]
        child = subprocess.Popen(
            command, env=os.environ | server.environment, stdout=subprocess.PIPE, text=True
        )
        server.control(kill=[child.pid, draw.randrange(1, 90)])
        child.communicate(timeout=60)
        assert child.returncode in (0, -signal.SIGKILL), attempt
        kills += child.returncode != 0
        finished += child.returncode == 0
        server.control(kill=None)
        found = weft.newest_complete_checkpoint(path)
        if not found:
            assert newest == 0
            continue
        report = weft.inspect_checkpoint(found)
        assert report["verdict"] == "COMPLETE" and report["step"] >= newest, report
        newest = report["step"]
        rows = 10_001 if newest % 2 == 0 else 101
        x = weft.zeros((rows, 1000))
        weft.load(found, weft.StateDict({"x": x}))
        assert (x == weft.arange(rows * 1000.0).reshape((rows, 1000)) + newest).all().item()
        if attempt % 50 == 49:
            print(attempt + 1, "starts,", kills, "kills, step", newest, flush=True)
    assert kills > KILLS // 2
    child = run(server, sys.executable, "-c", SAVER, path, str(newest))
    assert child[0] == 0, child[1]
    told = server.control()
    # Nothing of the killed ones is left behind.
    assert not told["uploads"]
    left = {key.split("/")[1] for key in told["objects"]["bucket"]}
    assert len([name for name in left if name.startswith("step-")]) <= 4, left
    assert not [name for name in left if name.startswith(".removed")]
