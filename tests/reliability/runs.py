# SPDX-License-Identifier: Apache-2.0
"""Starts one run of the program, acts on it while it runs, and waits for its end."""
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

MARK = "WEFT_FAULTS_MARK"
SLACK = 20  # seconds that a run may take beyond its deadline, on a busy machine
CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
SAVED = re.compile(r"^(?:\[\d+\] )?saved (.+)$", re.M)
RESUMED = re.compile(r"^(?:\[\d+\] )?resumed from (.+) after step (\d+)$", re.M)
PLAIN = ("OMP_WAIT_POLICY", "passive"), ("OMPI_ALLOW_RUN_AS_ROOT", "1"), (
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), ("OMPI_MCA_btl", "self,vader")


@dataclass(frozen=True)
class Settings:
    """The settings that decide the numbers of a run."""
    ranks: int = 1
    mesh: str = ""
    strategy: str = "full_shard"
    dtype: str = "f32"
    accumulate: int = 1
    steps: int = 8
    lr: str = "0.003"
    seed: int = 1
    batch: int = 24
    data: str = "plain"
    init: str = ""
    reproducible: bool = False

    def flags(self, inputs):
        """The flags of `weft train`; `inputs` is the folder of data, models and weights."""
        flags = {"--data": inputs / self.data / "text", "--model": inputs / "config.json",
                 "--strategy": self.strategy, "--dtype": self.dtype, "--steps": self.steps,
                 "--accumulate": self.accumulate, "--lr": self.lr, "--seed": self.seed,
                 "--batch": self.batch, "--seq": 8, "--threads": 1,
                 "--tokenizer": "bytes"}
        if self.mesh:
            flags["--mesh"] = self.mesh
        if self.init:
            flags["--init"] = inputs / self.init
        if self.reproducible:
            flags["--reproducible"] = ""
        return {name: str(value) for name, value in flags.items()}


@dataclass
class Action:
    """Done once the metrics have `lines` lines, `delay` seconds later."""
    what: str
    lines: int
    delay: float
    do: object


@dataclass
class Plan:
    """One run that is still to be started."""
    settings: Settings
    way: str  # threads, processes or mpirun
    name: str
    flags: dict
    environment: dict = field(default_factory=dict)
    unset: set = field(default_factory=set)
    preload: list = field(default_factory=list)
    shell: list = field(default_factory=list)  # shell commands before the whole job
    redirect: str = ""  # redirections of the whole job
    rank_shell: list = field(default_factory=list)  # shell commands before each rank
    rank_redirect: str = ""
    stdout: str = "file"  # file, full, reader
    reader_lines: int = 0
    actions: list = field(default_factory=list)
    deadline: float = 30
    launch: list = field(default_factory=list)  # more flags of `weft run`
    port: int = 0  # of two hosts of one rank each, which meet there

    def command(self, program):
        """The whole command line, through shells where something is to happen before."""
        flags = dict(self.flags) | {"--deadline": str(self.deadline)}
        if self.way == "threads":
            flags["--ranks"] = str(self.settings.ranks)
        words = [word for pair in flags.items() for word in pair if word]
        train = in_shell([str(program), "train", *words], self.rank_shell, self.rank_redirect)
        count = str(self.settings.ranks)
        if self.port:
            train = self.on_two_hosts([str(program), "run", "-n", "1", *self.launch], train)
        elif self.way == "processes":
            train = [str(program), "run", "-n", count, *self.launch, "--", *train]
        if self.way == "mpirun":
            mpirun = [shutil.which("mpirun"), "--oversubscribe", "--bind-to", "none"]
            train = [*mpirun, "-n", count, *train]
        return in_shell(train, self.shell, self.redirect)

    def on_two_hosts(self, launcher, train):
        """A `weft run` for each of two hosts; one that is killed is replaced."""
        def host(rank):
            words = [*launcher, "--hosts", "2", "--host-rank", str(rank), "--rendezvous",
                     f"localhost:{self.port}"]
            first, again = ([*words, *more, "--", *train] for more in ([], ["--rejoin"]))
            return f"{shlex.join(first)} || test $? != 137 || {shlex.join(again)}"
        script = (f"({host(1)}) & second=$!\n({host(0)})\ncode=$?\n"
                  "wait $second || code=$?\nexit $code")
        return ["/bin/sh", "-c", script]


def in_shell(command, before, redirect):
    if not before and not redirect:
        return command
    script = "".join(f"{line}\n" for line in before) + f'exec "$@" {redirect}'
    return ["/bin/sh", "-c", script, "sh", *command]


@dataclass
class Outcome:
    """The facts known of a run that ended."""
    plan: Plan
    command: list
    code: int | None = None  # as a shell says it: 128 + signal; None: it had to be killed
    seconds: float = 0
    stdout: str = ""
    stderr: str = ""
    done: list = field(default_factory=list)  # actions that were in time
    left: list = field(default_factory=list)  # processes that were left behind

    def saved(self):
        return [line.strip() for line in SAVED.findall(self.stdout)]

    def resumed_step(self):
        found = RESUMED.findall(self.stdout)
        return int(found[-1][1]) if found else 0

    def is_crash(self):
        return self.code is not None and self.code - 128 in CRASHES


def environment_of(pid):
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in text.split(b"\0"))
    return {name.decode(errors="replace"): value.decode(errors="replace")
            for name, _, value in pairs}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


class Job:
    """A run under way."""

    def __init__(self, plan, program, folder):
        self.plan, self.folder = plan, folder
        self.metrics = Path(plan.flags.get("--metrics", folder / "no-metrics"))
        self.mark = f"{os.getpid()}-{folder.name}-{plan.name}"
        self.outcome = Outcome(plan, plan.command(program))
        self.out, self.err = folder / f"{plan.name}.out", folder / f"{plan.name}.err"
        self.process, self.reader, self.read = None, None, b""
        self.started = self.last_act = 0

    def environment(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "OMPI_"))}
        env |= dict(PLAIN) | {MARK: self.mark, "TMPDIR": str(self.folder)} | self.plan.environment
        if self.plan.preload:
            env["LD_PRELOAD"] = ":".join(map(str, self.plan.preload))
        return {name: value for name, value in env.items() if name not in self.plan.unset}

    def start(self):
        out, written = self.out.open("wb"), None
        if self.plan.stdout == "full":
            out.close()
            out = open("/dev/full", "wb")
        if self.plan.stdout == "reader":
            out.close()
            self.reader, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(written, True)
            out = os.fdopen(written, "wb")
        with out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                self.outcome.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                cwd=self.folder, env=self.environment(), start_new_session=True)
        self.started = self.last_act = time.monotonic()

    def marked(self):
        """{process: its environment} of all processes of this run."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and is_alive(entry):
                environment = environment_of(entry)
                if environment.get(MARK) == self.mark:
                    found[int(entry)] = environment
        return found

    def targets(self, who):
        """Processes: "launcher" (the program itself where ranks are threads), "job", or a rank."""
        if who == "launcher" or self.plan.way == "threads":
            return [self.process.pid]
        marked = self.marked()
        if who == "job":
            return list(marked)
        names = ("WEFT_RANK", "OMPI_COMM_WORLD_RANK")
        return [pid for pid, env in marked.items() if pid != self.process.pid
                and any(env.get(name) == str(who) for name in names)]

    def launcher_of(self, rank):
        """The `weft run` that started a rank, while it lives."""
        for pid in self.targets(rank):
            try:
                parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                words = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # A rank may have processes below it.
            if words[1:2] == [b"run"]:
                return int(parent)
        return None

    def send(self, who, number):
        for pid in self.targets(who):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def lines(self):
        try:
            # Reading /dev/full never ends.
            return self.metrics.read_bytes().count(b"\n") if self.metrics.is_file() else 0
        except FileNotFoundError:  # removed meanwhile
            return 0

    def read_some(self):
        """Reads the pipe that stdout is; closes it after so many lines."""
        try:
            while chunk := os.read(self.reader, 65536):
                self.read += chunk
        except BlockingIOError:
            pass
        if self.read.count(b"\n") >= self.plan.reader_lines:
            os.close(self.reader)
            self.reader = None

    def wait(self):
        """Acts, until the process ends or is past its limit."""
        waiting = sorted(self.plan.actions, key=lambda action: (action.lines, action.delay))
        due = None
        poll = select.poll()
        handle = os.pidfd_open(self.process.pid)
        poll.register(handle, select.POLLIN)
        while self.process.poll() is None:
            now = time.monotonic()
            if now - self.last_act > self.plan.deadline + SLACK:
                return
            if waiting and due is None:
                # A run without metrics has actions by time alone.
                if self.lines() >= waiting[0].lines or now - self.started > 3:
                    due = now + waiting[0].delay
            if due is not None and now >= due:
                action, due = waiting.pop(0), None
                action.do(self)
                self.last_act = time.monotonic()
                self.outcome.done.append(action.what)
                continue
            if self.reader is not None:
                self.read_some()
            busy = waiting or self.reader is not None
            poll.poll(2 if busy else 500)
        os.close(handle)
        self.outcome.code = self.process.returncode
        if self.outcome.code < 0:
            self.outcome.code = 128 - self.outcome.code

    def finish(self):
        """Fills in the outcome; ends what was left behind."""
        if self.outcome.code is None:
            self.outcome.left = [f"{pid}: the run itself" for pid in (self.process.pid,)]
        else:
            until = time.monotonic() + 5
            while (left := self.marked()) and time.monotonic() < until:
                time.sleep(0.02)
            self.outcome.left = [f"{pid}: rank {env.get('WEFT_RANK', '?')}"
                                 for pid, env in left.items()]
        for pid in self.marked() if self.outcome.left else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        if self.reader is not None:
            self.plan.reader_lines = 1 << 60
            self.read_some()
            if self.reader is not None:
                os.close(self.reader)
        self.outcome.seconds = time.monotonic() - self.started
        text = self.read if self.plan.stdout == "reader" else self.out.read_bytes()
        self.outcome.stdout = text.decode(errors="replace")
        self.outcome.stderr = self.err.read_bytes().decode(errors="replace")
        return self.outcome


def run(plan, program, folder):
    job = Job(plan, program, folder)
    job.start()
    job.wait()
    return job.finish()


def metrics_of(path):
    """The lines of a metrics file. Throws ValueError for one that is not an object of a step."""
    lines = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            one = json.loads(line)
            lines.append((one["step"], one["loss"], one["val_loss"], one["lr"], one["grad_norm"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of {path.name} is {line[:60]!r}") from error
    return lines


def changed(settings, **what):
    return replace(settings, **what)
