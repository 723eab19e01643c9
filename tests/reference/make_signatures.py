#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes signatures.json: 200 S3 requests and the Authorization headers that botocore gives them.

    pip install botocore && python make_signatures.py
"""
import datetime
import json
import os
import random
from unittest import mock
from urllib.parse import quote

import botocore
import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEYS = [
    "a", "run/step-00000001-0123456789abcdef/rank-00000-of-00004.safetensors", "with space/x y",
    "plus+sign", "tilde~and-dots..x", "double//slash", "/leading", "trailing/", "percent%20literal",
    "equals=dt=2024-05-22/x", "ünïcode/日本語/📦", "amp&query?hash#", "quote'\"<>", "semi;colon:at@",
    "brackets[0]{1}(2)", "star*dollar$bang!", "comma,caret^pipe|back\\slash`",
    "./dot/../dots", "tab\tkey",
]
QUERIES = [
    [], [["uploads", ""]], [["partNumber", "7"], ["uploadId", "abc+/=~ x"]],
    [["list-type", "2"], ["prefix", "run/"], ["delimiter", "/"], ["encoding-type", "url"]],
    [["prefix", "a b&c=d"], ["list-type", "2"], ["continuation-token", "1/x+y=="]],
    [["b", "2"], ["a", "1"], ["a", "0"], ["A", "9"]], [["x", ""], ["empty", ""]],
    [["ключ", "значение"]],
    [["max-keys", "1"], ["prefix", ""]],
]
HEADERS = [
    [], [["if-none-match", "*"]], [["range", "bytes=0-65535"], ["if-match", '"0123abc-7"']],
    [["x-amz-meta-weft-upload", "  two   spaces inside  "]], [["X-Amz-Meta-Upper", "Value"]],
    [["content-type", "text/plain; charset=utf-8"], ["x-amz-acl", "private"]],
]
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Signer(botocore.auth.S3SigV4Auth):
    """Signs with a given hash of the body."""

    def payload(self, request):
        return self.hash


def signed(number):
    draw = random.Random(number)
    credentials = Credentials("AKIA%016d" % number, "secret/%d+key" % draw.randrange(10**9),
                              None if number % 3 else "session/token+%d==" % number)
    request = {
        "method": draw.choice(["GET", "PUT", "POST", "DELETE"]),
        "host": draw.choice(["localhost:9000", "bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:1"]),
        "path": "/bucket/" + KEYS[number % len(KEYS)],
        "query": QUERIES[number % len(QUERIES)],
        "headers": HEADERS[number % len(HEADERS)],
        "hash": draw.choice([EMPTY, "UNSIGNED-PAYLOAD", "%064x" % draw.getrandbits(256)]),
        "region": draw.choice(["us-east-1", "eu-west-1", "garage"]),
        "time": 1_600_000_000 + draw.randrange(200_000_000),
        "id": credentials.access_key,
        "secret": credentials.secret_key,
        "token": credentials.token or "",
    }
    escape = lambda text: quote(text.encode(), safe="-._~")
    query = "&".join(sorted(f"{escape(k)}={escape(v)}" for k, v in request["query"]))
    target = quote(request["path"].encode(), safe="/-._~")
    request["target"] = target + ("?" + query if query else "")
    now = datetime.datetime.fromtimestamp(request["time"], datetime.timezone.utc)
    asked = AWSRequest(request["method"], "http://" + request["host"] + request["target"])
    for name, value in request["headers"]:
        asked.headers[name] = value
    asked.headers["host"] = request["host"]
    naive = now.replace(tzinfo=None)
    with mock.patch("botocore.auth.get_current_datetime", lambda *a, **k: naive), \
            mock.patch("botocore.auth.datetime", mock.Mock(
                datetime=mock.Mock(utcnow=lambda: naive, now=lambda *a: now))):
        signer = Signer(credentials, "s3", request["region"])
        signer.hash = request["hash"]
        signer.add_auth(asked)
    assert asked.headers["X-Amz-Date"] == now.strftime("%Y%m%dT%H%M%SZ"), asked.headers
    assert asked.headers["x-amz-content-sha256"] == request["hash"]
    request["authorization"] = asked.headers["Authorization"]
    return request


def main():
    rows = [signed(number) for number in range(200)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "signatures.json")
    with open(path, "w") as out:
        json.dump({"botocore": botocore.__version__, "requests": rows}, out, indent=0,
                  ensure_ascii=True)
        out.write("\n")


main()
