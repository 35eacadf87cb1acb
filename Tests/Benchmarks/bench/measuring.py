"""Does the work in all places in turn, round after round."""

import os
import pathlib
import subprocess
import sys
import time

from places import MODES, RULED
import timing

OURS = ["native", *MODES, RULED]
# Seconds. In `shared` the kernel keeps names for 0.9.
LONGER_THAN_NAMES = 1.1


def measure(workloads, places, rounds):
    """The nanoseconds of each round, by workload and place; the requests of one run, by workload, place and kind; and remarks on what was left out.
    Ended early, what was done until then."""
    times, requests, remarks = {}, {}, []
    try:
        _measure(workloads, places, rounds, times, requests, remarks)
    except KeyboardInterrupt:
        remarks.append("ended early")
    return times, requests, remarks


def _measure(workloads, places, rounds, times, requests, remarks):
    for workload in workloads:
        before = time.monotonic()
        if workload.cold and os.geteuid() != 0:
            remarks.append(f"“{workload.name}” needs root, who may drop the kernel's caches")
            continue
        missing = workload.missing()
        if missing:
            remarks.append(f"“{workload.name}” needs {missing}")
            continue
        print(workload.name, end=" ", flush=True, file=sys.stderr)
        directories = {}
        for name, directory in places.directories.items():
            if _works(lambda: places.by_its_worker(name, lambda: workload.prepare(directory)), workload, name, remarks):
                directories[name] = directory
        times[workload.name] = _rounds(workload, places, directories, rounds, remarks)
        requests[workload.name] = {name: _count(workload, places, name, directories[name]) for name in places.counted}
        print(f" {time.monotonic() - before:.0f} s", file=sys.stderr)


def _works(action, workload, name, remarks):
    """Whether somebody else's place can do it: if not, that is said and the others go on. Ours and the native one have to."""
    try:
        action()
    except (OSError, subprocess.CalledProcessError) as error:
        if name in OURS:
            raise
        remarks.append(f"“{workload.name}” failed in {name}: {error}")
        return False
    return True


def _rounds(workload, places, directories, rounds, remarks):
    times = {name: [] for name in directories}
    order = list(directories)
    for _ in range(rounds):
        for name in list(order):
            if not _works(lambda: times[name].append(_time(workload, places, name, directories[name])), workload, name, remarks):
                order.remove(name)
                del times[name]
        # Rotates the places, so that none always follows the same one.
        order = order[1:] + order[:1]
        print(".", end="", flush=True, file=sys.stderr)
    return times


def _time(workload, places, name, directory):
    _get_ready(workload, places, name, directory)
    return places.by_its_worker(name, lambda: workload.run(directory))


def _count(workload, places, name, directory):
    """The requests of what is timed, by kind. In a run of its own, as asking the daemon takes some of the time for which names are kept."""

    def run():
        seen = []
        timing.observers.append(lambda: seen.append(places.requests(name)))
        try:
            workload.run(directory)
        finally:
            timing.observers.clear()
        counts = {}
        for before, after in zip(seen[::2], seen[1::2]):
            for kind, count in after.items():
                counts[kind] = counts.get(kind, 0) + count - before.get(kind, 0)
        return {kind: count for kind, count in counts.items() if count}

    # The preparation then renews all names, so that none expires during the measurement.
    time.sleep(LONGER_THAN_NAMES)
    _get_ready(workload, places, name, directory)
    return places.by_its_worker(name, run)


def _get_ready(workload, places, name, directory):
    if workload.cold:
        _drop_caches()
    elif not workload.anew:
        # Warms the cache by an untimed run, because the kernel's names expire during the round of the other places.
        places.by_its_worker(name, lambda: workload.run(directory))


def _drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
