"""The part of a run that is timed, as opposed to what prepares it and cleans up after it."""

import subprocess
import time

# Called at the beginning and the end of the timed part. A run may have several such parts.
observers = []


def observed(body):
    """What `body` returns."""
    for observe in observers:
        observe()
    result = body()
    for observe in observers:
        observe()
    return result


def timed(body):
    """How many nanoseconds `body` took."""

    def take():
        before = time.monotonic_ns()
        body()
        return time.monotonic_ns() - before

    return observed(take)


def spawn(words, directory):
    """How many nanoseconds a program took, which has to succeed."""
    return timed(lambda: subprocess.run(
        words, cwd=directory, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
