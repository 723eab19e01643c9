# SPDX-License-Identifier: Apache-2.0
"""The faults, by the rows of docs/reliability.md. A fault is a function of the case, the plan of
the run that it is for, and a random generator; it changes the plan or the files and returns what it
did in words. The docstring of a fault is what `faults.py --list` prints.
"""
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass

from laws import NAME, is_whole, steps_in
from runs import Action, Job, changed

FAULTS = {}


@dataclass(frozen=True)
class Fault:
    """A row's fault. `when`: start and during are of one run; before: of the directory, before the
    first run; between: of the directory, before the second; resume: of the second run's start."""
    row: str
    when: str
    group: str
    ways: tuple
    harmless: bool
    apply: object
    alone: bool
    weight: float

    def fits(self, case):
        return case.way in self.ways


def fault(row, when, group="", ways=("threads", "processes", "mpirun"), harmless=False,
          alone=False, weight=1):
    """`group`: no case has two faults of one. `harmless`: the run exits with 0 all the same.
    `alone`: no case has another fault with it. `weight`: how often it is drawn."""
    def add(function):
        FAULTS[row] = Fault(row, when, group or row, ways, harmless, function, alone,
                            weight)
        return function
    return add


JOBS = ("processes", "mpirun")


# --- standard descriptors


@fault("closed-descriptors", "start", "stdout", harmless=True, weight=2)
def closed_descriptors(case, plan, rng):
    """Some of stdin, stdout and stderr are closed, of the job or of each rank."""
    closed = rng.sample(["<&-", ">&-", "2>&-"], rng.randint(1, 3))
    # mpirun itself hangs without a stdin and stderr.
    of_ranks = plan.way == "mpirun" or (plan.way == "processes" and rng.random() < 0.5)
    if of_ranks:
        plan.rank_redirect = " ".join(closed)
    else:
        plan.redirect = " ".join(closed)
    return f"{'ranks' if of_ranks else 'job'} {' '.join(closed)}"


@fault("full-stdout", "start", "stdout")
def full_stdout(case, plan, rng):
    """Stdout is /dev/full."""
    plan.stdout = "full"
    return "stdout is /dev/full"


@fault("closed-pipe", "start", "stdout")
def closed_pipe(case, plan, rng):
    """Stdout is a pipe whose reader closes it after some lines."""
    plan.stdout, plan.reader_lines = "reader", rng.randint(0, 8)
    return f"the reader of stdout leaves after {plan.reader_lines} lines"


# --- signals and peers


def moment(rng, steps):
    """A random moment of a run: so many lines of metrics, and seconds after that."""
    lines = rng.randint(0, steps - 1)
    return {"lines": lines, "delay": rng.uniform(0, 0.03 if lines else 0.15)}


def target(case, rng):
    if case.way == "threads":
        return "launcher"
    return rng.choice(["launcher", "job", *range(case.settings.ranks)])


@fault("killed", "during", "signal")
def killed(case, plan, rng):
    """kill -9 of a rank, the launcher or the whole job."""
    who = target(case, rng)
    plan.actions.append(Action(f"kill -9 of {who}", do=lambda job: job.send(who, signal.SIGKILL),
                               **moment(rng, plan.settings.steps)))
    return plan.actions[-1].what


@fault("stop-signal", "during", "signal")
def stop_signal(case, plan, rng):
    """SIGTERM, SIGINT, SIGUSR2 or SIGHUP, once or twice, to a rank, the launcher or the job."""
    signals = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP]
    who, number = target(case, rng), rng.choice(signals)
    when = moment(rng, plan.settings.steps)
    for _ in range(rng.choice([1, 1, 2])):
        plan.actions.append(Action(f"{number.name} to {who}",
                                   do=lambda job: job.send(who, number), **when))
        when = when | {"delay": when["delay"] + rng.uniform(0, 0.02)}
    return ", ".join(action.what for action in plan.actions)


@fault("stopped-process", "during", "signal", weight=3)
def stopped_process(case, plan, rng):
    """SIGSTOP, with a SIGCONT later; a rank's process may stay stopped."""
    who = target(case, rng)
    when = moment(rng, plan.settings.steps)
    plan.actions.append(Action(f"SIGSTOP to {who}", do=lambda job: job.send(who, signal.SIGSTOP),
                               **when))
    if plan.way == "processes" and isinstance(who, int) and rng.random() < 0.5:
        plan.deadline = 2
        return f"SIGSTOP to rank {who} for good"
    later = rng.uniform(0.02, 0.6)
    plan.actions.append(Action(f"SIGCONT to {who}", lines=when["lines"],
                               delay=when["delay"] + later,
                               do=lambda job: job.send(who, signal.SIGCONT)))
    return f"SIGSTOP to {who}, SIGCONT {later:.2f} s later"


# --- the disk


def calls_of_run(case):
    """About how many calls in the save directory the run makes."""
    saves = case.settings.steps // case.save_every + 1
    return saves * 32 * (case.settings.ranks if case.way == "threads" else 1)


def preload_disk(case, plan, kind, k, root=None):
    mask = 255 if case.way == "threads" else 1 << case.rng.randrange(case.settings.ranks)
    plan.preload.append(case.shims["disk"])
    plan.environment |= {"WEFT_CRASH_ROOT": str(root or case.disk), "WEFT_CRASH_PROCESS": "1",
                         "WEFT_CRASH": f"{kind}:{k}:{mask}"}
    ranks = "all ranks" if case.way == "threads" else f"rank {mask.bit_length() - 1}"
    return f"{kind} at call {k} of {ranks}"


def fail_calls(case, plan, rng, kind, only):
    """Calls fail at a random one, or at one of the writes or syncs."""
    calls = calls_of_run(case) // 8 if only else calls_of_run(case)
    words = preload_disk(case, plan, kind, rng.randrange(calls))
    if only:
        plan.environment["WEFT_CRASH_ONLY"] = only
    return f"{words}{f', of {only} calls only' if only else ''}"


@fault("disk-error", "start", "disk", weight=2)
def disk_error(case, plan, rng):
    """The k-th call, write or fsync in the save directory fails, or all from there on."""
    kind, only = rng.choice(["eio", "enospc", "dead"]), rng.choice(["", "write", "write", "sync"])
    return fail_calls(case, plan, rng, kind, only)


@fault("disk-interrupted", "start", "disk", harmless=True, weight=4)
def disk_interrupted(case, plan, rng):
    """The k-th call in the save directory is interrupted, or transfers half."""
    kind = rng.choice(["eintr", "short", "short"])
    return fail_calls(case, plan, rng, kind, rng.choice(["", "write", "write", "write"]))


@fault("killed-in-save", "start", "disk")
def killed_in_save(case, plan, rng):
    """The process is killed at the k-th call in the save directory."""
    return preload_disk(case, plan, "kill", rng.randrange(calls_of_run(case)))


@fault("power-loss", "start", "disk", ways=("threads",), weight=3)
def power_loss(case, plan, rng):
    """The machine stops at the k-th call: what was not synced is lost."""
    kind = rng.choice(["lose_writes", "lose_names", "lose_all", "lose_all"])
    return preload_disk(case, plan, kind, rng.randrange(calls_of_run(case)))


@fault("full-disk", "before", "mount")
def full_disk(case, plan, rng):
    """The save directory is a file system that is too small for the run."""
    size = rng.randint(60, 1200)
    case.mount(size)
    return f"a file system of {size} KiB"


@fault("file-size-limit", "start")
def file_size_limit(case, plan, rng):
    """RLIMIT_FSIZE."""
    blocks = rng.randint(0, 80)
    plan.shell.append(f"ulimit -f {blocks}")
    return f"ulimit -f {blocks}"


@fault("few-descriptors", "start")
def few_descriptors(case, plan, rng):
    """RLIMIT_NOFILE."""
    most = rng.randint(4, 40)
    (plan.rank_shell if plan.way == "mpirun" else plan.shell).append(f"ulimit -n {most}")
    return f"ulimit -n {most}"


# --- data, models, flags


def own_data(case, plan):
    """A copy of the data for this case; returns its path."""
    path = case.folder / f"data-{case.settings.data}" / "text"
    if not path.exists():
        path.parent.mkdir()
        shutil.copy(case.inputs / case.settings.data / "text", path)
    plan.flags["--data"] = str(path)
    return path


@fault("data-disk-error", "start", "disk")
def data_disk_error(case, plan, rng):
    """A call on the data file fails."""
    path = own_data(case, plan)
    return "data: " + preload_disk(case, plan, "eio", rng.randrange(6), root=path.parent)


@fault("data-truncated", "during", "data")
def data_truncated(case, plan, rng):
    """The data file is cut while the run reads it; then it is whole again."""
    case.use_large_data(plan)
    path = own_data(case, plan)
    left = rng.choice([0, 1000, rng.randrange(path.stat().st_size)])
    # The cut comes after the first step: a run that begins with less data is another run.
    plan.actions.append(Action("data cut", rng.randint(1, plan.settings.steps - 1),
                               rng.uniform(0, 0.01), lambda job: os.truncate(path, left)))
    case.after_run.append(lambda: shutil.copy(case.inputs / case.settings.data / "text", path))
    return f"data cut to {left} bytes"


@fault("data-shorter", "resume", "data")
def data_shorter(case, plan, rng):
    """The data file is shorter when the run is resumed."""
    path = own_data(case, plan)
    size = path.stat().st_size
    left = size - rng.randint(1, size // 2)
    os.truncate(path, left)
    return f"resumed with {left} of {size} bytes"


@fault("data-changed", "resume", "data")
def data_changed(case, plan, rng):
    """Other data of the same length when the run is resumed."""
    path = own_data(case, plan)
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    count = rng.choice([1, 100, len(data)])
    for i in range(at, min(len(data), at + count)):
        data[i] = ord("x") if data[i] != ord("x") else ord("y")
    path.write_bytes(data)
    return f"resumed with data changed from byte {at}, {count} bytes"


@fault("other-settings", "resume", "settings")
def other_settings(case, plan, rng):
    """Another learning rate, seed or batch when the run is resumed."""
    flag, value = rng.choice([("--lr", "0.002"), ("--seed", "2"), ("--batch", "36"),
                              ("--clip", "0.5"), ("--weight-decay", "0.3")])
    plan.flags[flag] = value
    return f"resumed with {flag} {value}"


def folder_of_rank(case, plan, rank, changes):
    """Every rank runs in a folder with the inputs under equal names; `changes` are of one rank."""
    for i in range(case.settings.ranks):
        own = case.folder / f"of-rank-{i}"
        own.mkdir(exist_ok=True)
        inputs = {"text": case.inputs / case.settings.data / "text",
                  "config.json": case.inputs / "config.json", "init": case.inputs / "init-a"}
        for name, path in (inputs | (changes if i == rank else {})).items():
            (own / name).symlink_to(path)
    plan.rank_shell.append(f'cd "{case.folder}/of-rank-${{WEFT_RANK:-$OMPI_COMM_WORLD_RANK}}"')
    plan.flags |= {"--data": "text", "--model": "config.json"}
    if case.settings.init:
        plan.flags["--init"] = "init"


@fault("rank-config", "start", "inputs", ways=JOBS)
def rank_config(case, plan, rng):
    """One rank reads another config.json."""
    rank = rng.randrange(case.settings.ranks)
    folder_of_rank(case, plan, rank, {"config.json": case.inputs / "config-b.json"})
    return f"rank {rank} reads a config.json with another rope_theta"


@fault("rank-init", "start", "inputs", ways=JOBS)
def rank_init(case, plan, rng):
    """One rank reads other initial weights."""
    rank = rng.randrange(case.settings.ranks)
    case.change(plan, init="init-a")
    folder_of_rank(case, plan, rank, {"init": case.inputs / "init-b"})
    return f"rank {rank} reads other initial weights"


@fault("rank-data", "start", "inputs", ways=JOBS)
def rank_data(case, plan, rng):
    """One rank reads other data of the same length."""
    rank = rng.randrange(case.settings.ranks)
    folder_of_rank(case, plan, rank, {"text": case.inputs / "other" / "text"})
    return f"rank {rank} reads other data"


@fault("rank-flags", "start", "inputs", ways=JOBS)
def rank_flags(case, plan, rng):
    """One rank is started with another flag."""
    rank = rng.randrange(case.settings.ranks)
    extra = rng.choice(["--lr 0.002", "--seed 9", "--accumulate 3", "--strategy ddp --clip 0.9",
                        "--dtype bf16", "--steps 9", "--save-every 5"])
    plan.rank_shell.append(f'if [ "${{WEFT_RANK:-$OMPI_COMM_WORLD_RANK}}" = {rank} ]; '
                           f'then set -- "$@" {extra}; fi')
    return f"rank {rank} has {extra} too"


@fault("non-finite", "start", "settings", alone=True)
def non_finite(case, plan, rng):
    """A learning rate that makes weights infinite or not numbers."""
    lr, steps = rng.choice(["1e20", "1e38", "1e39", "1e400"]), rng.choice([1, 2, 5])
    case.change(plan, lr=lr, steps=steps)
    case.has_reference = False
    return f"--lr {lr} --steps {steps}"


# --- the save directory


def whole_checkpoints(case):
    return sorted(path for path in steps_in(case.ck) if is_whole(path))


@fault("renamed-checkpoint", "between", "damage", weight=2)
def renamed_checkpoint(case, plan, rng):
    """A step directory has the name of another step or generation."""
    paths = whole_checkpoints(case)
    if not paths:
        return "nothing to rename"
    path = rng.choice(paths)
    step, generation = int(NAME.match(path.name)[1]), path.name.rpartition("-")[2]
    step = rng.choice([1, step + 1, 99, 10 ** 8])
    if rng.random() < 0.2:
        generation = generation[::-1]
    to = path.with_name(f"step-{step:08}-{generation}")
    if to.exists():
        return "the other name is taken"
    path.rename(to)
    if to != path:
        case.excused |= {path, to}
    return f"{path.name} is called {to.name}"


@fault("removed-file", "between", "damage")
def removed_file(case, plan, rng):
    """A file of a checkpoint is gone, or the whole checkpoint."""
    paths = whole_checkpoints(case)
    if not paths:
        return "nothing to remove"
    path = rng.choice(paths)
    case.excused.add(path)
    if rng.random() < 0.3:
        shutil.rmtree(path)
        return f"{path.name} is gone"
    file = rng.choice(sorted(path.iterdir()))
    file.unlink()
    return f"{path.name}/{file.name} is gone"


@fault("flipped-bit", "between", "damage", weight=2)
def flipped_bit(case, plan, rng):
    """A bit of a checkpoint's file is flipped, or its end is cut."""
    paths = whole_checkpoints(case)
    if not paths:
        return "nothing to damage"
    path = rng.choice(paths[-2:])
    file = rng.choice(sorted(path.iterdir()))
    case.excused.add(path)
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data))
    if rng.random() < 0.2:
        os.truncate(file, at)
        return f"{path.name}/{file.name} is cut at byte {at}"
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"{path.name}/{file.name} has a flipped bit in byte {at}"


@fault("mixed-checkpoint", "between", "damage")
def mixed_checkpoint(case, plan, rng):
    """A file of a checkpoint is that of another step."""
    paths = whole_checkpoints(case)
    if len(paths) < 2:
        return "nothing to mix"
    one, other = rng.sample(paths, 2)
    file = rng.choice(sorted(one.iterdir()))
    shutil.copy(other / file.name, file)
    case.excused.add(one)
    return f"{one.name}/{file.name} is that of {other.name}"


@fault("interrupted-first-save", "before", "first")
def interrupted_first_save(case, plan, rng):
    """Only what an interrupted first save leaves lies in the directory."""
    reference = case.references.of(case.settings)
    case.ck.mkdir(parents=True, exist_ok=True)
    to = case.ck / reference.path_of(1).name
    to.mkdir()
    if case.settings.ranks > 1 and rng.random() < 0.7:
        file = sorted(reference.path_of(1).iterdir())[0]
        shutil.copy(file, to / rng.choice([file.name, f".{file.name}.tmp"]))
    plan.flags["--resume"] = str(case.ck)
    return f"{to.name} holds {[entry.name for entry in to.iterdir()]}"


@fault("missing-directory", "start", "first", harmless=True)
def missing_directory(case, plan, rng):
    """The directory of --save and --resume does not exist yet."""
    plan.flags["--resume"] = str(case.ck)
    return "--save and --resume name a directory that does not exist"


@fault("moved-directory", "during", "directory")
def moved_directory(case, plan, rng):
    """The save directory is renamed while the run saves; then it has its name again."""
    away = case.disk / "away"

    def move(job):
        if case.ck.exists() and not away.exists():
            case.ck.rename(away)

    def back():
        if not away.exists():
            return
        if case.ck.exists():
            for path in case.ck.iterdir():
                if not (away / path.name).exists():
                    path.rename(away / path.name)
            shutil.rmtree(case.ck)
        away.rename(case.ck)

    plan.actions.append(Action("directory moved", do=move, **moment(rng, plan.settings.steps)))
    case.after_run.append(back)
    return "the save directory is renamed"


@fault("foreign-newer", "during", "directory", alone=True)
def foreign_newer(case, plan, rng):
    """Another run's checkpoint of a later step appears in the directory."""
    other = changed(case.settings, seed=77, steps=case.settings.steps + 3)
    reference = case.references.of(other)
    newest = reference.path_of(other.steps)

    def place(job):
        if not case.ck.exists():
            return
        shutil.copytree(newest, case.disk / "incoming")
        (case.disk / "incoming").rename(case.ck / newest.name)
        case.excused.add(case.ck / newest.name)
        case.foreign = case.ck / newest.name
        # It is early when the last save has still to begin, and so to see it.
        case.foreign_is_early = job.lines() < plan.settings.steps

    plan.actions.append(Action("foreign checkpoint", do=place,
                               **moment(rng, max(1, plan.settings.steps - 2))))
    return f"{newest.name} of another run appears"


@fault("two-jobs", "during", "directory", alone=True)
def two_jobs(case, plan, rng):
    """A second job saves into the same directory, with the same settings or another seed."""
    settings = case.settings if rng.random() < 0.3 else changed(case.settings, seed=5)
    resumes = rng.random() < 0.5
    other = case.plan("other", settings, resumes=resumes)

    def start(job):
        case.other = Job(other, case.program, case.folder)
        case.other.start()

    # Soon, so that the directory is still empty.
    when = {"lines": rng.choice([0, 0, 1]), "delay": rng.uniform(0, 0.05)}
    plan.actions.append(Action("second job", do=start, **when))
    return (f"a second job {'with --resume ' if resumes else ''}"
            f"{'of the same settings' if settings == case.settings else 'of another seed'}")


# --- clock, environment, outputs


@fault("clock", "start", harmless=True)
def clock(case, plan, rng):
    """The wall clock is wrong, and jumps."""
    before, after = (rng.choice([0, -1, -3600, -10 ** 8, 86400, 10 ** 9]) for _ in range(2))
    k = rng.randrange(40)
    plan.preload.append(case.shims["clock"])
    plan.environment["WEFT_CLOCK"] = f"{before}:{k}:{after}"
    return f"the clock is {before} s off, after {k} readings {after} s"


@fault("file-times", "between", harmless=True, weight=0.5)
def file_times(case, plan, rng):
    """The files of the directory have times of another year, or of the future."""
    for path in sorted(case.ck.rglob("*"), reverse=True) if case.ck.exists() else ():
        moment_ = rng.choice([0, 1, 10 ** 9, 4 * 10 ** 9])
        os.utime(path, (moment_, moment_), follow_symlinks=False)
    return "file times are wrong"


ENVIRONMENTS = (
    {"WEFT_RANK": "0"}, {"WEFT_WORLD_SIZE": "2"}, {"WEFT_RANK": "0", "WEFT_WORLD_SIZE": "x"},
    {"WEFT_RANK": "-1", "WEFT_WORLD_SIZE": "2", "WEFT_LOCAL_RANK": "0"},
    {"WEFT_RANK": "5", "WEFT_WORLD_SIZE": "2"}, {"RANK": "0", "WORLD_SIZE": "2"},
    {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
     "MASTER_PORT": "29999"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, {"SLURM_JOB_ID": "77"},
    {"OMP_NUM_THREADS": "banana"}, {"OMP_NUM_THREADS": "-3"}, {"WEFT_FLIGHT": "/nonexistent/x"},
    {"TMPDIR": "/nonexistent"}, {"TMPDIR": ""}, {"LC_ALL": "tr_TR.UTF-8"}, {"WEFT_JOB": "../../x"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
    {"HOME": "", "PATH": "/nonexistent"},
)


@fault("environment", "start", ways=("threads", "processes"))
def environment(case, plan, rng):
    """Variables of launchers half set, or nonsense."""
    extra = rng.choice(ENVIRONMENTS)
    plan.environment |= extra
    plan.deadline = 2
    return f"environment {extra}"


@fault("metrics-file", "start", "metrics", weight=0.5)
def metrics_file(case, plan, rng):
    """The metrics cannot be written."""
    plan.flags["--metrics"] = rng.choice(["/dev/full", "/dev/null/metrics",
                                          str(case.folder / "missing" / "metrics")])
    return f"--metrics {plan.flags['--metrics']}"


@fault("trace-file", "start", "trace", weight=0.5)
def trace_file(case, plan, rng):
    """The trace cannot be written."""
    plan.flags["--trace"] = rng.choice(["/dev/full", str(case.folder),
                                        str(case.folder / "missing" / "trace")])
    return f"--trace {plan.flags['--trace']}"


def mount(path, kibibytes):
    """Mounts a file system there; False where that is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "weft-faults", path],
                          capture_output=True, check=False)
    return done.returncode == 0


def unmount(path):
    subprocess.run(["umount", "-l", path], capture_output=True, check=False)


# Its faults add themselves to FAULTS.
import elastic_faults  # noqa: E402,F401
