# SPDX-License-Identifier: Apache-2.0
"""A small S3 server in memory, of the standard library alone, for tests: it checks each signature
strictly and can fail on purpose.

    python s3_server.py [--port N] [--bucket NAME] [--fault KIND=PROBABILITY]... [--seed N]

prints "port N" and the environment of clients, and serves until it is killed. `POST /_control` with
a JSON object sets attributes of the server: faults (probabilities by kind), kill ([process, request
number from now on]), clock, token, region, conditional, strict, paused; "put" adds objects and
"reset" empties all. It answers what happened.
"""
import argparse
import datetime
import hashlib
import hmac
import http.server
import json
import os
import random
import re
import signal
import socket
import struct
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

KEY, SECRET, REGION = "AKIATEST", "secret/of+tests", "us-east-1"
# These may go wrong with an answer. "lost": the request is served, its answer is not sent.
FAULTS = ("500", "503", "429", "truncate", "slow", "reset", "lost", "etag", "complete200")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def etag_of(data):
    return '"%s"' % hashlib.md5(data).hexdigest()


class Problem(Exception):
    def __init__(self, status, code, message="", extra="", headers=()):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message
        self.extra, self.headers = extra, dict(headers)


class Stored:
    """An object."""

    def __init__(self, data, etag, meta):
        self.parts, self.etag, self.meta = [data], etag, meta
        self.size = len(data)
        self.time = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")

    @property
    def data(self):
        if len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port=0, bucket="bucket", faults=None, seed=0, token="", region=REGION):
        super().__init__(("127.0.0.1", port), Handler)
        self.objects = {bucket: {}}
        self.uploads = {}
        self.token, self.region = token, region
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.faults = dict(faults or {})
        self.requests = 0
        self.injected = {}
        # A process, and the number of the request at which it is killed.
        self.kill = None
        self.conditional = True
        # True: requests wait until it is False.
        self.paused = False
        # False: no signature is checked, for measurements.
        self.strict = True
        self.clock = 0.0
        self.log = []

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]

    def environment(self):
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION, "AWS_ENDPOINT_URL": self.url,
                "AWS_SESSION_TOKEN": self.token, "AWS_EC2_METADATA_DISABLED": "true"}

    def handle_error(self, request, address):
        pass

    def fault_of(self, method, path, query):
        with self.lock:
            self.requests += 1
            self.log.append([method, path, query])
            if self.kill and self.requests >= self.kill[1]:
                process, self.kill = self.kill[0], None
                # The kill comes before or after this request is served.
                before = self.random.random() < 0.5
                timer = threading.Timer(0 if before else 0.02, os.kill, (process, signal.SIGKILL))
                timer.start()
                if before:
                    timer.join()
                    return "reset"
            for kind, probability in self.faults.items():
                if self.random.random() < probability:
                    self.injected[kind] = self.injected.get(kind, 0) + 1
                    return kind
            return None

    def control(self, body):
        with self.lock:
            asked = json.loads(body or "{}")
            if asked.get("kill"):
                asked["kill"] = [asked["kill"][0], self.requests + asked["kill"][1]]
            if asked.pop("reset", False):
                self.requests, self.injected, self.log, self.uploads = 0, {}, [], {}
                self.objects = {bucket: {} for bucket in self.objects}
            encoding = asked.pop("encoding", "utf-8")
            for key, text in asked.pop("put", {}).items():
                data = text.encode(encoding)
                self.objects["bucket"][key] = Stored(data, etag_of(data), {})
            for name, value in asked.items():
                setattr(self, name, value)
            return json.dumps({
                "requests": self.requests, "injected": self.injected, "log": self.log,
                "uploads": [key for _, key, _, _ in self.uploads.values()],
                "objects": {b: sorted(all) for b, all in self.objects.items()}}).encode()


def quoted(text, safe):
    return urllib.parse.quote(text, safe=safe)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    # --- signatures

    def check_signature(self, body):
        if not self.server.strict:
            return
        parts = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
            r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})",
            self.headers.get("authorization") or "")
        if not parts:
            raise Problem(403, "AccessDenied", "Anonymous access is forbidden")
        key, day, region, names, signature = parts.groups()
        if key != KEY:
            raise Problem(403, "InvalidAccessKeyId", "The key does not exist")
        if (self.headers.get("x-amz-security-token") or "") != self.server.token:
            raise Problem(403, "InvalidToken", "The token is malformed")
        if region != self.server.region:
            raise Problem(400, "AuthorizationHeaderMalformed", "the region is wrong",
                          "<Region>%s</Region>" % self.server.region)
        stamp = self.headers["x-amz-date"]
        when = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ")
        when = when.replace(tzinfo=datetime.timezone.utc).timestamp()
        if abs(when - time.time() - self.server.clock) > 900 or stamp[:8] != day:
            raise Problem(403, "RequestTimeTooSkewed", "The difference is too large")
        signed = names.split(";")
        must = {n.lower() for n in self.headers if n.lower().startswith(("x-amz-", "if-"))}
        if signed != sorted(signed) or not (must | {"host"}) <= set(signed):
            raise Problem(403, "AccessDenied", "There were headers that were not signed")
        self.check_signed(signed, day, region, stamp, signature)
        stated = self.headers["x-amz-content-sha256"]
        if stated != "UNSIGNED-PAYLOAD" and stated != sha256(body):
            raise Problem(400, "XAmzContentSHA256Mismatch", "The hash is not that of the body")

    def check_signed(self, signed, day, region, stamp, signature):
        path, _, query = self.path.partition("?")
        # The target must be sent as it is signed.
        if quoted(urllib.parse.unquote_to_bytes(path), "/-._~") != path:
            raise Problem(403, "SignatureDoesNotMatch", "the path is not escaped as S3 wants it")
        pairs = [tuple(piece.split("=", 1)) for piece in query.split("&")] if query else []
        for pair in pairs:
            for piece in pair:
                if len(pair) != 2 or quoted(urllib.parse.unquote_to_bytes(piece), "-._~") != piece:
                    raise Problem(403, "SignatureDoesNotMatch", "the query is not escaped")
        headers = "".join(
            "%s:%s\n" % (n, " ".join((self.headers.get(n) or "").split())) for n in signed)
        canonical = "\n".join([self.command, path, "&".join("=".join(p) for p in sorted(pairs)),
                               headers, ";".join(signed), self.headers["x-amz-content-sha256"]])
        scope = "%s/%s/s3/aws4_request" % (day, region)
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, sha256(canonical.encode())])
        secret = ("AWS4" + SECRET).encode()
        for part in (day, region, "s3", "aws4_request", text):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        if secret.hex() != signature:
            raise Problem(403, "SignatureDoesNotMatch", "The signature does not match")

    # --- requests

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, _, query = self.path.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if path == "/_control":
            return self.answer(200, {}, self.server.control(body))
        while self.server.paused:
            time.sleep(0.01)
        kind = self.server.fault_of(self.command, path, query)
        if kind == "reset":
            return self.reset()
        if kind in ("500", "503", "429"):
            code = {"500": "InternalError", "503": "SlowDown", "429": "TooManyRequests"}[kind]
            return self.fail(Problem(int(kind), code, "on purpose"))
        try:
            self.check_signature(body)
            bucket, _, key = urllib.parse.unquote(path[1:]).partition("/")
            objects = self.server.objects.get(bucket)
            if objects is None:
                raise Problem(404, "NoSuchBucket", "The bucket does not exist")
            answer = self.serve(objects, bucket, key, body, kind)
        except Problem as problem:
            return self.fail(problem)
        if kind == "lost":
            return self.reset()
        self.answer(*answer, kind)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def serve(self, objects, bucket, key, body, kind):
        with self.server.lock:
            if not key:
                if "uploads" in self.query:
                    return self.list_uploads(bucket)
                return self.list_objects(objects)
            if self.command == "GET" and "uploadId" not in self.query:
                return self.get(objects, key)
            if self.command == "POST" and "uploads" in self.query:
                return self.begin(bucket, key)
            if "uploadId" in self.query:
                return self.part(objects, bucket, key, body, kind)
            if self.command == "PUT":
                self.check_conditions(objects.get(key))
                objects[key] = Stored(body, etag_of(body), self.meta())
                return 200, {"ETag": self.shown(objects[key].etag, kind)}, b""
            if self.command == "DELETE":
                objects.pop(key, None)
                return 204, {}, b""
        raise Problem(405, "MethodNotAllowed")

    def shown(self, etag, kind):
        return '"00000000000000000000000000000000"' if kind == "etag" else etag

    def meta(self):
        named = [(n.lower(), v) for n, v in self.headers.items()]
        return {n: v for n, v in named if n.startswith("x-amz-meta-")}

    def check_conditions(self, there):
        if not self.server.conditional:
            return
        conditions = {"if-none-match", "if-match"} & {name.lower() for name in self.headers}
        if self.server.conditional == "refused" and self.command != "GET" and conditions:
            raise Problem(501, "NotImplemented", "a condition")
        if self.headers.get("if-none-match") == "*" and there:
            raise Problem(412, "PreconditionFailed", "it exists")
        if "if-match" in self.headers and self.command != "GET":
            if not there:
                raise Problem(404, "NoSuchKey", "it is missing")
            if there.etag != self.headers["if-match"]:
                raise Problem(412, "PreconditionFailed", "it changed")

    def get(self, objects, key):
        there = objects.get(key)
        if not there:
            raise Problem(404, "NoSuchKey", "The key does not exist")
        if self.headers.get("if-match") not in (None, there.etag):
            raise Problem(412, "PreconditionFailed", "it changed")
        headers = {"ETag": there.etag, **there.meta}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
        if not asked:
            return 200, headers, there.data
        first, last = int(asked[1]), min(int(asked[2]), len(there.data) - 1)
        if first >= len(there.data):
            raise Problem(416, "InvalidRange", "not satisfiable", headers=headers)
        headers["Content-Range"] = "bytes %d-%d/%d" % (first, last, len(there.data))
        return 206, headers, memoryview(there.data)[first:last + 1]

    def list_objects(self, objects):
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        most = int(self.query.get("max-keys", 1000))
        after = self.query.get("continuation-token", "")
        xml, count, last, seen = [], 0, "", set()
        truncated = False
        for key in sorted(objects, key=lambda k: k.encode()):
            if not key.startswith(prefix) or (after and key <= after):
                continue
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            common = key[:end + 1] if end >= 0 else None
            if common and (common in seen or (after and after.startswith(common))):
                continue
            if count == most:
                truncated = True
                break
            count, last = count + 1, key
            if common:
                seen.add(common)
                last = common + "\U0010ffff"
                xml.append("<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>"
                           % self.name(common))
            else:
                xml.append("<Contents><Key>%s</Key><LastModified>%s</LastModified>"
                           "<ETag>%s</ETag><Size>%d</Size></Contents>"
                           % (self.name(key), objects[key].time, escape(objects[key].etag),
                              objects[key].size))
        if truncated:
            xml.append("<IsTruncated>true</IsTruncated><NextContinuationToken>%s"
                       "</NextContinuationToken>" % escape(last))
        return 200, {}, self.document("ListBucketResult", "".join(xml))

    def name(self, key):
        return quoted(key, "/") if self.query.get("encoding-type") == "url" else escape(key)

    def document(self, root, inner):
        text = '<?xml version="1.0" encoding="UTF-8"?>\n<%s>%s</%s>' % (root, inner, root)
        return text.encode()

    def list_uploads(self, bucket):
        xml = "".join(
            "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>" % (self.name(key), id)
            for id, (there, key, _, _) in self.server.uploads.items()
            if there == bucket and key.startswith(self.query.get("prefix", "")))
        return 200, {}, self.document("ListMultipartUploadsResult", xml)

    def begin(self, bucket, key):
        id = "%032x" % self.server.random.getrandbits(128)
        self.server.uploads[id] = (bucket, key, {}, self.meta())
        return 200, {}, self.document("InitiateMultipartUploadResult",
                                      "<UploadId>%s</UploadId>" % id)

    def part(self, objects, bucket, key, body, kind):
        id = self.query["uploadId"]
        if id not in self.server.uploads or self.server.uploads[id][:2] != (bucket, key):
            raise Problem(404, "NoSuchUpload", "The upload does not exist")
        parts, meta = self.server.uploads[id][2:]
        if self.command == "PUT":
            number = int(self.query["partNumber"])
            parts[number] = Stored(body, etag_of(body), {})
            return 200, {"ETag": self.shown(parts[number].etag, kind)}, b""
        if self.command == "DELETE":
            del self.server.uploads[id]
            return 204, {}, b""
        if self.command == "GET":
            xml = "".join("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>"
                          % (n, escape(parts[n].etag)) for n in sorted(parts))
            return 200, {}, self.document("ListPartsResult", xml)
        named = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>", body.decode())
        named = [(int(n), e.replace("&quot;", '"')) for n, e in named]
        numbers = [n for n, _ in named]
        if not named or numbers != sorted(numbers):
            raise Problem(400, "InvalidPartOrder")
        if any(n not in parts or parts[n].etag != e for n, e in named):
            raise Problem(400, "InvalidPart", "a part is missing or has another ETag")
        if any(len(parts[n].data) < 5 << 20 for n in numbers[:-1]):
            raise Problem(400, "EntityTooSmall", "a part is below 5 MiB")
        if kind == "complete200":
            return 200, {}, self.document("Error", "<Code>InternalError</Code>")
        self.check_conditions(objects.get(key))
        digest = hashlib.md5(b"".join(bytes.fromhex(parts[n].etag[1:-1]) for n in numbers))
        etag = '"%s-%d"' % (digest.hexdigest(), len(numbers))
        made = objects[key] = Stored(b"", etag, meta)
        made.parts = [parts[n].data for n in numbers]
        made.size = sum(map(len, made.parts))
        del self.server.uploads[id]
        return 200, {}, self.document("CompleteMultipartUploadResult",
                                      "<ETag>%s</ETag>" % escape(etag))

    # --- answers

    def answer(self, status, headers, body, kind=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "truncate" and len(body) > 1:
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            return self.reset()
        if kind == "slow":
            self.wfile.flush()
            time.sleep(0.3)
        self.wfile.write(body)

    def fail(self, problem):
        body = self.document("Error", "<Code>%s</Code><Message>%s</Message>%s" % (
            problem.code, escape(problem.message), problem.extra))
        self.answer(problem.status, {**problem.headers, "Content-Type": "application/xml"}, body)

    def reset(self):
        """Closes the connection by RST."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.wfile = self.rfile = open("/dev/null", "r+b", buffering=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bucket", default="bucket")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=PROBABILITY")
    options = parser.parse_args()
    faults = {k: float(p) for k, p in (f.split("=") for f in options.fault)}
    server = Server(options.port, options.bucket, faults, options.seed)
    print("port", server.server_address[1], json.dumps(server.environment()), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
