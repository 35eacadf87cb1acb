#!/usr/bin/env python3
"""What continuous integration runs, stages side by side: .ci/run calls it. `stages.py --list` prints the stages.
`stages.py --keep-going` runs all of them, whatever fails.

A stage starts when those that it comes after have passed and what it uses is free. Its output goes to
.build/stages/NAME.txt, and is printed when it fails. The stage `test` comes last, alone, and its output is printed.
The last lines name the stages that were skipped, with the reason.
"""
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / ".ci/test.d"))
from accounting import ProcessorTime  # noqa: E402


# The exit status of a stage that cannot run here, or not as a whole.
SKIPPED = 77


@dataclasses.dataclass
class Stage:
    name: str
    command: str
    after: tuple = ()
    # `build`: a compiler that takes all processors. `machine`: a stage that disturbs others, or that others disturb.
    uses: str = ""
    # A failure is reported, and fails nothing else.
    advisory: bool = False


STAGES = [
    Stage("lint", ".ci/lint --no-build"),
    Stage("tests", "swift build --build-tests --explicit-target-dependency-import-check error", uses="build"),
    Stage("release", "make --no-print-directory release && .ci/test --install", after=("tests",), uses="build"),
    # One build with the address sanitizer serves the fuzzers and the daemon.
    Stage("address-build", ".ci/sanitize --build address", after=("release",), uses="build"),
    Stage("thread-build", ".ci/sanitize --build thread", after=("address-build",), uses="build"),
    Stage("library", ".ci/library", after=("thread-build",), uses="build"),
    Stage("documentation", ".ci/documentation", after=("tests",)),
    Stage("site", "rm -rf .build/site && .ci/site .build/site", after=("lint",)),
    # No reference is counted and no memory taken on the way of a request.
    Stage("hot-path", "python3 Tests/Benchmarks/bench/hotpath.py .build/release/grantfsd", after=("release",)),
    # Installed, used, upgraded and removed in a copy of this machine that is thrown away.
    Stage("package", "packages=$(.ci/deb) && .ci/test-dist && .ci/test-deb $packages && .ci/test-deb-units $packages", after=("release",)),
    # Parsed and compiled, not enforced: .ci/apparmor without an option boots kernels for that.
    Stage("apparmor", ".ci/apparmor --parse"),
    Stage("selinux", ".ci/selinux"),
    # With the SDK of the Model Context Protocol, from PyPI.
    Stage("mcp", ".ci/mcp", after=("release",)),
    Stage("bwrap", ".ci/bwrap", after=("release",)),
    Stage("engines", ".ci/packages engines && .ci/engines", after=("release",)),
    Stage("distributions", ".ci/distributions", after=("release",)),
    Stage("units", ".ci/units", after=("package",)),
    Stage("fuzz", ".ci/fuzz 20", after=("address-build",)),
    Stage("address", ".ci/sanitize address", after=("address-build", "units", "documentation", "hot-path", "fuzz")),
    Stage("thread", ".ci/sanitize thread", after=("thread-build", "address")),
    # Debian 13's kernel. User Mode Linux itself panics when its processes are stopped (docs/conformance.md).
    Stage("kernels", ".ci/kernels --quick uml-6.12", after=("address",), advisory=True),
    Stage("machines", ".ci/machines", after=("thread", "library", "kernels", "site"), uses="machine"),
    Stage("test", "make test ARGS=--times", after=("machines",), uses="machine"),
]


class Runner:
    def __init__(self, stages, keeps_going):
        self.keeps_going = keeps_going
        self.stages = {stage.name: stage for stage in stages}
        self.state = {name: "waiting" for name in self.stages}
        self.changed = threading.Condition()
        # A failure ends the run when the stages beside it have ended.
        self.running, self.rows, self.remarks = {}, [], []
        self.directory = root / ".build/stages"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def can_start(self, stage):
        ended = ("passed", "skipped", "failed") if self.keeps_going else ("passed", "skipped")
        done = all(self.state[name] in ended for name in stage.after if name in self.state)
        used = {self.stages[name].uses for name in self.running}
        free = not (stage.uses and stage.uses in used) and not (stage.uses == "machine" and self.running) and "machine" not in used
        return done and free and self.state[stage.name] == "waiting"

    def run(self):
        with self.changed:
            while True:
                failed = "failed" in self.state.values()
                ready = [] if failed and not self.keeps_going else [stage for stage in self.stages.values() if self.can_start(stage)]
                if ready:
                    self.start(ready[0])
                elif self.running:
                    self.changed.wait()
                else:
                    return not failed and "waiting" not in self.state.values()

    def start(self, stage):
        self.state[stage.name] = "running"
        processor = ProcessorTime(f"grantfs-stage-{os.getpid()}-{stage.name}")
        shown = stage.name == "test"
        output = None if shown else open(self.directory / f"{stage.name}.txt", "wb")
        print(f"stage {stage.name}: {stage.command}", flush=True)
        process = subprocess.Popen(
            processor.inside(["sh", "-c", stage.command]), stdin=subprocess.DEVNULL, stdout=output,
            stderr=None if shown else subprocess.STDOUT, cwd=root, start_new_session=True)
        self.running[stage.name] = process
        threading.Thread(target=self.wait, args=(stage, process, processor, time.monotonic()), daemon=True).start()

    def wait(self, stage, process, processor, started):
        status = process.wait()
        wall, spent = time.monotonic() - started, processor.seconds()
        processor.close()
        with self.changed:
            del self.running[stage.name]
            self.rows.append((stage.name, wall, spent))
            self.state[stage.name] = "passed" if status == 0 else "skipped" if status == SKIPPED else "failed"
            log = self.directory / f"{stage.name}.txt"
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            if self.state[stage.name] == "failed" and stage.advisory:
                self.state[stage.name] = "passed"
                print(f"stage {stage.name} failed with status {status}, which fails nothing else")
                self.remarks.append(f"not passed: {stage.name}: status {status}, which fails nothing else")
            elif self.state[stage.name] == "skipped":
                reasons = [line for line in lines if "left out" in line] or lines[-1:]
                self.remarks += [f"skipped: {stage.name}: {line.strip()}" for line in reasons]
            said = lines[-60:] if status != 0 else [line for line in lines[-3:] if line.strip()]
            print("\n".join(f"  {stage.name}: {line}" for line in said))
            print(f"stage {stage.name}: {self.state[stage.name]} after {wall:.0f} s", flush=True)
            self.changed.notify_all()

    def stop(self):
        for process in list(self.running.values()):
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass

    def print_table(self, wall):
        print("   wall s  processor s  stage")
        for name, seconds, spent in sorted(self.rows, key=lambda row: -row[1]):
            print(f"{seconds:9.0f}  {'' if spent is None else f'{spent:.0f}':>11}  {name}")
        print(f"{wall:9.0f}  {'':>11}  in all")
        print("\n".join(self.remarks), flush=True)


def main():
    if sys.argv[1:] == ["--list"]:
        for stage in STAGES:
            print(f"{stage.name:14} {stage.command}{'   after ' + ', '.join(stage.after) if stage.after else ''}")
        return 0
    names = [word for word in sys.argv[1:] if word != "--keep-going"]
    chosen = [stage for stage in STAGES if not names or stage.name in names]
    runner = Runner(chosen, keeps_going="--keep-going" in sys.argv[1:])

    def ended(number, _):
        runner.stop()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    started = time.monotonic()
    passed = runner.run()
    runner.print_table(time.monotonic() - started)
    if passed and not runner.remarks:
        print("no stage was skipped")
    closing = root / ".build/test-output/summary"
    if passed and closing.exists():
        print(closing.read_text(), end="")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
