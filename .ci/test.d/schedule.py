#!/usr/bin/env python3
"""Runs the tests in several processes side by side: .ci/test calls it.

A unit is a suite, or one test of a long suite. Units start in the order of their measured time, the longest first
(Tests/times.tsv), as far as the processors suffice: a unit that computes runs beside units that wait. Each has a
process of its own, in which tests run one after the other. Tests that need the machine alone run at the end. Closes
with “N passed, N failed, N skipped”.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import machine
from accounting import ProcessorTime

root = pathlib.Path(__file__).resolve().parent.parent.parent
times_file = root / "Tests/times.tsv"
# A suite whose tests take longer in all is run in parts. A suite that is `.serialized` never is.
LONGEST_UNIT = 12.0
# Tests below this are not worth a line in the file of times.
SHORTEST_KEPT = 1.0
# Of a test that has no line there.
UNKNOWN = (0.1, 0.05)
# A process that takes longer hangs.
TIME_LIMIT = 1500
# These disturb every test beside them.
alone = re.compile(r"/(AProcessInExec|AFleetWithFaults|AHundredSandboxes)/")


def serialized_suites():
    """The names of the suites that are declared `.serialized`."""
    names = set()
    for path in (root / "Tests").glob("*Tests/**/*.swift"):
        for traits, name in re.findall(r"@Suite\(([^{}]*?)\)\s*(?:@MainActor\s*)?struct (\w+)", path.read_text(), re.S):
            if ".serialized" in traits:
                names.add(name)
    return names


def read_times():
    """Seconds and seconds of processor time by the name of the test, from the last time that they were recorded."""
    if not times_file.exists():
        return {}
    lines = (line.split("\t") for line in times_file.read_text().splitlines() if not line.startswith("#"))
    return {name: (float(seconds), float(spent)) for seconds, spent, name in lines}


class Unit:
    """Tests that one process runs, one after the other."""

    def __init__(self, name, tests, times):
        self.name, self.tests = name, tests
        self.seconds = sum(times.get(test, UNKNOWN)[0] for test in tests)
        # How much of a processor it uses on average.
        self.load = sum(times.get(test, UNKNOWN)[1] for test in tests) / self.seconds
        self.alone = bool(alone.search(tests[0]))

    def filters(self):
        """Arguments that select these tests and no others. The library compares with NAME/FILE:LINE:COLUMN."""
        return [word for test in self.tests for word in ("--filter", "^" + re.escape(test).replace("/", r"\/") + r"(\/|$)")]


def outside_areas(tests):
    """The tests that `make check` runs for no area."""
    lines = (root / ".ci/test.d/areas").read_text().splitlines()
    expressions = [line.split(None, 1)[1].strip() for line in lines if not line.startswith("#")]
    return [test for test in tests if not any(re.search(expression, test) for expression in expressions)]


def make_units(tests):
    times, serialized = read_times(), serialized_suites()
    suites = {}
    for test in tests:
        suites.setdefault(test.rsplit("/", 1)[0] if "/" in test else test.split(".")[0], []).append(test)
    units = []
    for suite, members in suites.items():
        whole = Unit(suite, members, times)
        if whole.seconds <= LONGEST_UNIT or suite.rsplit("/", 1)[-1] in serialized or whole.alone:
            units.append(whole)
            continue
        long = [test for test in members if times.get(test, UNKNOWN)[0] >= SHORTEST_KEPT]
        units += [Unit(test, [test], times) for test in long]
        short = [test for test in members if test not in long]
        if short:
            units.append(Unit(suite, short, times))
    return sorted(units, key=lambda unit: -unit.seconds)


class Run:
    """What came of one unit."""

    def __init__(self, unit):
        self.unit = unit
        self.passed, self.failed, self.skipped = 0, [], []
        self.times = {}  # name: (wall, processor or None)
        self.wall = self.processor = None
        self.output, self.trouble = "", None


class Scheduler:
    def __init__(self, program, directory):
        self.program, self.directory = program, directory
        self.printing = threading.Lock()
        self.running = {}
        self.runs = []
        self.count = 0
        # Several of these may run at a time, in namespaces of their own with the same pids.
        self.token = os.urandom(4).hex()

    def run(self, units, workers):
        """Runs all of `units`, so many at a time."""
        waiting, loads, changed = list(units), {}, threading.Condition()
        processors = os.cpu_count() or 2

        def take(number):
            """The longest unit for which there is a processor, or any if nothing runs; None at the end."""
            with changed:
                while waiting:
                    free = processors - sum(loads.values())
                    unit = next((unit for unit in waiting if unit.load <= free or not loads), None)
                    if unit:
                        waiting.remove(unit)
                        loads[number] = unit.load
                        return unit
                    changed.wait()
                return None

        def work(number):
            while unit := take(number):
                try:
                    run = self.run_one(unit, number)
                except Exception as error:  # A fault of this program is a failure, never a silent end.
                    run = Run(unit)
                    run.trouble = f"could not be run: {error!r}"
                self.report(run)
                with changed:
                    del loads[number]
                    changed.notify_all()

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_one(self, unit, number):
        run = Run(unit)
        with self.printing:
            self.count += 1
            base = self.directory / f"{self.count:03}"
        events, log = base.with_suffix(".events"), base.with_suffix(".txt")
        os.mkfifo(events)
        command = [self.program, "--testing-library", "swift-testing", "--no-parallel", "--event-stream-version", "0",
                   "--event-stream-output-path", str(events)] + unit.filters()
        environment = dict(os.environ, **({"GRANTFS_ALONE": "1"} if unit.alone else {}))
        processor = ProcessorTime(f"grantfs-tests-{self.token}-{number}")
        # The reader opens first, without waiting for a process that may never open its end.
        reading = os.open(events, os.O_RDONLY | os.O_NONBLOCK)
        started = time.monotonic()
        with open(log, "wb") as output:
            process = subprocess.Popen(
                processor.inside(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=root, env=environment, start_new_session=True)
        self.running[process.pid] = unit
        reader = threading.Thread(target=self.read_events, args=(reading, process, run, processor))
        reader.start()
        try:
            status = process.wait(TIME_LIMIT * float(os.environ.get("GRANTFS_SLOWNESS", 1)))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            run.trouble = "took too long and was killed"
        self.running.pop(process.pid, None)
        reader.join()
        os.unlink(events)
        run.wall, run.processor = time.monotonic() - started, processor.seconds()
        processor.close()
        run.output = log.read_text(errors="replace")
        finished = run.passed + len(run.failed) + len(run.skipped)
        if run.trouble is None and (status != 0) != bool(run.failed):
            run.trouble = f"ended with status {status} after {finished} of {len(unit.tests)} tests"
        elif run.trouble is None and finished != len(unit.tests):
            run.trouble = f"ran {finished} of {len(unit.tests)} tests"
        return run

    def read_events(self, reading, process, run, processor):
        """Takes what the process says of its tests, until it has ended."""
        os.set_blocking(reading, False)
        rest, begun, issues = b"", {}, set()
        ended_once = False
        while True:
            try:
                data = os.read(reading, 1 << 16)
            except BlockingIOError:
                data = None
            if not data:
                # No data and no writer: one more look after the process has ended.
                if process.poll() is not None:
                    if ended_once:
                        break
                    ended_once = True
                time.sleep(0.005)
                continue
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.take_event(line, run, begun, issues, processor)
        os.close(reading)

    @staticmethod
    def take_event(line, run, begun, issues, processor):
        try:
            record = json.loads(line)
        except ValueError:
            return
        payload = record.get("payload", {})
        identity = payload.get("testID", "")
        if record.get("kind") != "event" or "(" not in identity:
            if payload.get("kind") == "testSkipped":
                # A suite that is skipped has no event for each of its tests.
                reason = " ".join(message["text"] for message in payload.get("messages", []))
                for test in run.unit.tests:
                    if test.startswith(identity + "/") and test not in run.skipped:
                        run.skipped.append(test)
                run.times.setdefault("skips", []).append(reason)
            return
        name = re.sub(r"/[^/]*\.swift:\d+:\d+$", "", identity)
        kind, now = payload["kind"], payload.get("instant", {}).get("absolute", 0)
        if kind == "testStarted":
            begun[name] = (now, processor.seconds())
        elif kind == "issueRecorded" and not payload.get("issue", {}).get("isKnown", False):
            issues.add(name)
        elif kind == "testSkipped":
            if name not in run.skipped:
                run.skipped.append(name)
            run.times.setdefault("skips", []).append(" ".join(message["text"] for message in payload.get("messages", [])))
        elif kind == "testEnded" and name in begun:
            wall, spent = begun[name]
            end = processor.seconds()
            run.times[name] = (now - wall, None if end is None else end - spent)
            failed = any(message.get("symbol") == "fail" for message in payload.get("messages", []))
            if failed or name in issues:
                run.failed.append(name)
            else:
                run.passed += 1

    def report(self, run):
        with self.printing:
            self.runs.append(run)
            for reason in run.times.pop("skips", []):
                print("➜ " + reason[:200])
            used = "" if run.processor is None else f", {run.processor:.1f} s of processor time"
            if run.trouble or run.failed:
                print(f"✘ {run.unit.name}: {run.trouble or 'failed'} after {run.wall or 0:.1f} s{used}")
                print(failures(run.output) or "\n".join(run.output.splitlines()[-20:]))
            else:
                print(f"✔ {run.unit.name}: {run.passed} tests, {run.wall:.1f} s{used}")
            sys.stdout.flush()

    def stop(self):
        for pid in list(self.running):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def failures(output):
    """Of what a process printed: each failure, with what is said of it."""
    kept, detailed = [], False
    for line in output.splitlines():
        if line.startswith("✘ "):
            detailed = True
        elif not (detailed and line.startswith(("↳", "±", "  "))) and not re.match(r"(error:|/.*: error:|Fatal error|.*Fatal error:)", line):
            detailed = False
            continue
        kept.append(line[:500])
    return "\n".join(kept)


def origin(line, runs):
    """Which unit made the fixture that a line about the machine names."""
    named = re.search(r"/[^ ]*/grantfs-test\.\w+", line)
    makers = [run.unit.name for run in runs if named and f"a fixture in {named[0]}\n" in run.output]
    return f"  ({', '.join(makers)})" if makers else ""


def print_times(scheduler, count):
    rows = [(wall, spent, name) for run in scheduler.runs for name, (wall, spent) in run.times.items()]
    print(f"the {count} slowest tests, of {len(rows)}:\n   wall s  processor s  test")
    for wall, spent, name in sorted(rows, reverse=True)[:count]:
        print(f"{wall:9.1f}  {'' if spent is None else f'{spent:.1f}':>11}  {name}")


def record_times(scheduler):
    """Writes what the next run goes by. Tests that did not run keep their line."""
    times = read_times()
    for run in scheduler.runs:
        for name, (wall, spent) in run.times.items():
            times[name] = (wall, wall / 2 if spent is None else spent)
    rows = sorted((name, *both) for name, both in times.items() if both[0] >= SHORTEST_KEPT)
    times_file.write_text("# Seconds, and seconds of processor time, of each test that takes longer than one:\n"
                          "# `make test ARGS=--record-times` writes this.\n"
                          + "".join(f"{seconds:.1f}\t{spent:.1f}\t{name}\n" for name, seconds, spent in rows))


def main():
    parser = argparse.ArgumentParser(prog=".ci/test")
    parser.add_argument("program")
    parser.add_argument("--filter", action="append", default=[], metavar="REGEX", help="only tests whose name contains it")
    parser.add_argument("--skip", action="append", default=[], metavar="REGEX", help="no tests whose name contains it")
    parser.add_argument("--times", action="store_true", help="print the slowest thirty tests")
    parser.add_argument("--record-times", action="store_true", help="write Tests/times.tsv anew")
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 2), metavar="N", help="processes at a time (default: 2 for each processor)")
    parser.add_argument("--no-comparison", action="store_true", help="do not compare the machine before and after")
    parser.add_argument("--output", default=".build/test-output", metavar="DIR", help="where output goes (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the units with their expected seconds and load, and run nothing")
    options = parser.parse_args()

    listed = subprocess.run([options.program, "--testing-library", "swift-testing", "--list-tests"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, cwd=root, check=True, text=True).stdout.splitlines()
    tests = [test for test in listed
             if (not options.filter or any(re.search(pattern, test) for pattern in options.filter))
             and not any(re.search(pattern, test) for pattern in options.skip)]
    units = make_units(tests)
    if options.list:
        for unit in units:
            print(f"{unit.seconds:7.1f}  {unit.load:4.2f}  {len(unit.tests):4}  {unit.name}{'  (alone)' if unit.alone else ''}")
        return 0
    if not units:
        print("grantfs: no test has that in its name", file=sys.stderr)
        return 1

    unassigned = [] if options.filter else outside_areas(tests)
    if unassigned:
        print("grantfs: in no area of .ci/test.d/areas: " + ", ".join(unassigned), file=sys.stderr)
        return 1

    directory = root / options.output
    subprocess.run(["rm", "-rf", directory], check=True)
    directory.mkdir(parents=True)
    before = None if options.no_comparison else machine.State()
    scheduler = Scheduler(options.program, directory)

    def ended(number, _):
        scheduler.stop()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    started = time.monotonic()
    scheduler.run([unit for unit in units if not unit.alone], options.workers)
    scheduler.run([unit for unit in units if unit.alone], 1)
    wall = time.monotonic() - started

    if options.times:
        print_times(scheduler, 30)
    if options.record_times:
        record_times(scheduler)
    left = machine.State().difference(before) if before else []
    runs = scheduler.runs
    failed = [test for run in runs for test in run.failed]
    broken = [run for run in runs if run.trouble]
    if failed or broken:
        print(f"grantfs: what failed (the whole output: {options.output}):")
        for run in runs:
            if run.failed or run.trouble:
                print(failures(run.output)[-3000:] or f"✘ {run.unit.name}: {run.trouble}")
    certain = [line for line in left if machine.is_of_tests(line)]
    for what, lines in (("the tests have left behind", certain), ("also new on this machine", [line for line in left if line not in certain])):
        if lines:
            print(f"grantfs: {what}:\n" + "\n".join(f"  {line}{origin(line, runs)}" for line in lines[:40]))
    passed, skipped = sum(run.passed for run in runs), sum(len(run.skipped) for run in runs)
    processor = [run.processor for run in runs]
    used = "" if None in processor else f", {sum(processor):.0f} s of processor time"
    print(f"grantfs: {len(units)} processes, {options.workers} at a time, {wall:.0f} s{used}")
    mounts = sum(1 for run in runs for name in run.times if name.startswith("MountTests."))
    required = os.environ.get("GRANTFS_REQUIRE_MOUNTS") == "1" and not options.filter
    if required and mounts == 0:
        print("grantfs: no test of a real mount has run; that counts as a failure here", file=sys.stderr)
    summary = f"{passed} passed, {len(failed) + len(broken)} failed, {skipped} skipped"
    (directory / "summary").write_text(summary + "\n")
    print(summary)
    if certain:
        print("grantfs: what tests leave behind counts as a failure", file=sys.stderr)
    return 1 if failed or broken or certain or (required and mounts == 0) else 0


if __name__ == "__main__":
    sys.exit(main())
