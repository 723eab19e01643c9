# SPDX-License-Identifier: Apache-2.0
"""Throughput of checkpoints in an object store next to curl's with as many parallel requests of the
same size, on a fast server in memory, or on the test server, which checks all and is slower.

    python benchmarks/object_store.py [--server build/release/bin/bench_object_server]
                                      [--megabytes 256] [--rounds 5]

Each round runs all cases once, in turn; the table has medians. weft signs each request, and hashes
each block that it writes or reads; curl does neither.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import weft

SERVER = Path(__file__).parent.parent / "tests/support/s3_server.py"
PART, BLOCK, UPLOADS, READS = 8 << 20, 4 << 20, 8, 16


def control(url, **what):
    body = json.dumps(what).encode()
    with urllib.request.urlopen(url + "/_control", data=body) as answer:
        return json.loads(answer.read())


def curl(parallel, entries, folder):
    config = Path(folder) / "curl.txt"
    config.write_text("\n".join(entries))
    begin = time.perf_counter()
    subprocess.run(
        ["curl", "-s", "-f", "--no-progress-meter", "-Z", "--parallel-immediate",
         "--parallel-max", str(parallel), "-K", config], check=True
    )  # fmt: skip
    return time.perf_counter() - begin


def curl_put(url, part, bytes_, folder):
    count = bytes_ // PART
    return curl(
        UPLOADS,
        [f'next\nsilent\nfail\nupload-file = "{part}"\nurl = "{url}/bucket/curl/{i}"\n'
         f'output = "/dev/null"\nheader = "Expect:"' for i in range(count)],
        folder,
    )  # fmt: skip


def curl_get(url, key, bytes_, folder):
    return curl(
        READS,
        [f'next\nsilent\nfail\nrange = "{at}-{at + BLOCK - 1}"\nurl = "{url}/bucket/{key}"\n'
         f'output = "/dev/null"' for at in range(0, bytes_ - BLOCK, BLOCK)],
        folder,
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", help="a program in place of the test server")
    options = parser.parse_args()
    bytes_ = options.megabytes << 20
    command = [options.server] if options.server else [sys.executable, SERVER]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    _, port, environment = server.stdout.readline().split(" ", 2)
    url = f"http://127.0.0.1:{port}"
    os.environ |= json.loads(environment)
    control(url, strict=False)
    seconds = {"save": [], "curl PUT": [], "load": [], "curl GET": []}

    def body(world):
        state = weft.StateDict({"x": weft.arange(float(bytes_ // 4))})
        into = weft.StateDict({"x": weft.zeros(bytes_ // 4)})
        for number in range(options.rounds):
            control(url, reset=True)
            saver = weft.CheckpointSaver(world, f"s3://bucket/run{number}")
            begin = time.perf_counter()
            path = saver.save(1, state)
            seconds["save"].append(time.perf_counter() - begin)
            with tempfile.TemporaryDirectory() as folder:
                part = Path(folder) / "part"
                part.write_bytes(os.urandom(PART))
                seconds["curl PUT"].append(curl_put(url, part, bytes_, folder))
                key = path.removeprefix("s3://bucket/") + "/rank-00000-of-00001.safetensors"
                # The server joins the parts of an object when it is first read.
                curl_get(url, key, 2 * BLOCK, folder)
                begin = time.perf_counter()
                weft.load(path, into)
                seconds["load"].append(time.perf_counter() - begin)
                seconds["curl GET"].append(curl_get(url, key, bytes_, folder))
            del saver

    try:
        weft.run_ranks(1, body)
    finally:
        server.kill()
    rates = {name: bytes_ / 1e6 / statistics.median(all_) for name, all_ in seconds.items()}
    print("| case | MB/s | of curl |\n|---|---|---|")
    print(f"| save | {rates['save']:.0f} | {rates['save'] / rates['curl PUT']:.2f} |")
    print(f"| curl PUT | {rates['curl PUT']:.0f} | |")
    print(f"| load | {rates['load']:.0f} | {rates['load'] / rates['curl GET']:.2f} |")
    print(f"| curl GET | {rates['curl GET']:.0f} | |")


main()
