#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs scripts/release in a small repository whose wheels are stand-ins: release_test.py ROOT."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n- Another.\n"
STAND_IN = "#!/bin/sh\nmkdir -p dist && echo {0} >dist/{0}\n"


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "scripts").mkdir()
        for name in ("release", "setup"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        for name, made in (("wheel", "weft.whl"), ("debs", "weft.deb")):
            (self.root / "scripts" / name).write_text(STAND_IN.format(made))
            (self.root / "scripts" / name).chmod(0o755)
        cmake = "project(weft VERSION 0.1.0 LANGUAGES CXX)\nset(OTHER VERSION 0.1.0)\n"
        (self.root / "CMakeLists.txt").write_text(cmake)
        (self.root / "README.md").write_text("find_package(weft 0.1 REQUIRED)\n")
        (self.root / "CHANGELOG.md").write_text(CHANGELOG)
        (self.root / ".gitignore").write_text("/build/\n/dist/\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments):
        person = {"NAME": "a", "EMAIL": "a@localhost"}
        env = {f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in person.items()}
        command = ["git", "-C", self.root, *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **env}
        ).stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A change")

    def release(self, *arguments):
        person = {f"GIT_{w}_{k}": "a" for w in ("AUTHOR", "COMMITTER") for k in ("NAME", "EMAIL")}
        done = subprocess.run(
            [self.root / "scripts/release", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **person},
        )
        return done.returncode, done.stdout, done.stderr

    def test_dry_run_changes_nothing(self):
        before = self.git("rev-parse", "HEAD")
        code, out, err = self.release("0.2.0")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("== nothing is changed; --do does it", out)
        self.assertIn("== version 0.1.0 -> 0.2.0 in CMakeLists.txt", out)
        self.assertIn("with 2 entries", out)
        self.assertIn("git push origin HEAD v0.2.0", out)
        self.assertEqual(self.git("rev-parse", "HEAD"), before)
        self.assertEqual(self.git("status", "--porcelain", "--ignored"), "")
        self.assertEqual(self.git("tag"), "")

    def test_release_is_tagged_with_artefacts_and_checksums(self):
        code, out, err = self.release("0.2.0", "--do")
        self.assertEqual((code, err), (0, ""), out)
        cmake = (self.root / "CMakeLists.txt").read_text()
        self.assertIn("project(weft VERSION 0.2.0 LANGUAGES CXX)\nset(OTHER VERSION 0.1.0)", cmake)
        self.assertEqual(
            (self.root / "README.md").read_text(), "find_package(weft 0.2 REQUIRED)\n"
        )
        changelog = (self.root / "CHANGELOG.md").read_text()
        self.assertRegex(changelog, r"## Unreleased\n\n## 0\.2\.0 - \d{4}-\d\d-\d\d\n\n### Added\n")
        self.assertEqual(self.git("tag"), "v0.2.0\n")
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(self.git("log", "-1", "--format=%s"), "Release 0.2.0\n")
        made = self.root / "build/release-0.2.0"
        digest = hashlib.sha256(b"weft.whl\n").hexdigest()
        sums = (made / "SHA256SUMS").read_text()
        self.assertIn(f"{digest}  weft.whl\n", sums)
        self.assertEqual(sums.count("\n"), 2)

    @unittest.skipUnless(shutil.which("abidiff"), "abidiff of abigail-tools is not installed")
    def test_binary_interface_is_compared_with_the_previous_tag(self):
        with (self.root / "CMakeLists.txt").open("r+") as cmake:
            text = cmake.read()
            cmake.seek(0)
            cmake.write("cmake_minimum_required(VERSION 3.25)\n" + text)
            cmake.write("set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)\n")
            cmake.write("add_library(weft SHARED weft.cpp)\n")
        (self.root / "include").mkdir()
        (self.root / "include/weft.h").write_text("int kept();\nint removed();\n")
        source = '#include "include/weft.h"\nint kept() { return 1; }\n'
        (self.root / "weft.cpp").write_text(source + "int removed() { return 2; }\n")
        self.commit()
        code, out, err = self.release("0.2.0", "--do")
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("== binary interface: no previous tag to compare with", out)
        for version, text, sentence in (
            ("0.2.1", source + "int removed() { return 3; }\n", "interface is that of v0.2.0"),
            ("0.3.0", source, "interface differs from that of v0.2.1: "),
        ):
            (self.root / "weft.cpp").write_text(text)
            (self.root / "CHANGELOG.md").write_text(CHANGELOG)
            self.commit()
            code, out, err = self.release(version, "--do")
            self.assertEqual((code, err), (0, ""), out)
            self.assertIn(sentence, out)
        report = (self.root / "build/release-0.3.0/abi-v0.2.1-v0.3.0.txt").read_text()
        self.assertIn("removed()", report)

    def test_errors_are_one_sentence(self):
        for arguments, sentence, wanted in (
            ([], "release: VERSION is missing; see scripts/release --help", 2),
            (["0.2"], "release: VERSION is 0.2, expected MAJOR.MINOR.PATCH", 2),
            (["0.2.0", "--push"], "release: unknown argument --push", 2),
            (["0.2.0", "--artefacts"], "release: --artefacts needs a value", 2),
            (["0.0.9"], "release: VERSION is 0.0.9, expected 0.1.0 or newer", 1),
        ):
            with self.subTest(arguments=arguments):
                code, _, err = self.release(*arguments)
                self.assertEqual(code, wanted)
                self.assertIn(sentence, err)
                self.assertEqual(err.count("\n"), 1)

    def test_unready_tree_is_refused(self):
        def sentence(version):
            code, _, err = self.release(version)
            self.assertEqual(code, 1)
            return err

        self.git("tag", "v0.1.0")
        self.assertIn("the tag v0.1.0 exists already", sentence("0.1.0"))
        (self.root / "CMakeLists.txt").write_text("project(weft VERSION 0.1.0)\n\n")
        self.assertIn("the work tree has changes, expected none", sentence("0.2.0"))
        (self.root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.1\n\n- A.\n")
        self.commit()
        self.assertIn("section Unreleased of CHANGELOG.md has no entry", sentence("0.2.0"))


if __name__ == "__main__":
    unittest.main()
