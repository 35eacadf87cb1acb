"""Containers below the AppArmor profile of their engine, with volumes of grantfs: confined.py PREFIX. Run by guest, in a kernel that has AppArmor."""

import os
import signal
import subprocess
import time
from pathlib import Path

import hooks
from place import Docker, Podman, run, started, wait

PROFILES = {"docker": "docker-default", "podman": "containers-default"}
# What a user of a volume does.
USE = """cat /data/one/file
echo new >/data/one/new && cat /data/one/new && busybox mv /data/one/new /data/one/moved && busybox chmod 600 /data/one/moved && rm /data/one/moved
busybox mkdir /data/one/d && busybox ln -s file /data/one/d/link && busybox rm -r /data/one/d && ls /data/one"""
HELD = "exec 3</data/one/file; while :; do cat /data/one/file; cat /proc/self/fd/3 && echo held; sleep 0.5; done"


def denials():
    """The kernel's reports of what a profile has denied to something."""
    return [line for line in run("dmesg").stdout.splitlines() if 'apparmor="DENIED"' in line]


def confined(place, engine):
    """A profile in effect denies a mount, and nothing of a volume, its revocation, its restoration and the death of its daemon."""
    before = denials()
    engine.create("one", f"path={place.base}/one")
    engine.command("run", "-d", *engine.options("c1", "one:/data"), *engine.image, "sh", "-c", HELD)
    engine.command("run", "-d", *engine.options("c2", "one:/data"), *engine.image, "mapping", "/data/one/file")
    shown = lambda name: (lambda done: (done.stdout + done.stderr).splitlines()[-8:])(engine.command("logs", "--tail", "8", name))
    for name in ("c1", "c2"):
        pid = engine.command("inspect", "-f", "{{.State.Pid}}", name).stdout.strip()
        label = Path(f"/proc/{pid}/attr/current").read_text().strip("\n\0")
        assert label.startswith(PROFILES[engine.name]) and label.endswith(" (enforce)"), label
    wait("c1 reads", lambda: "held" in shown("c1"))
    wait("c2 reads", lambda: "o" in shown("c2"))
    done = engine.command("exec", "c1", "sh", "-c", f"{USE}; cat /proc/self/attr/current")
    assert done.stdout == f"one\nnew\nfile\n{label}\n", done
    place.grantfs("revoke", "--view", "one", "one")
    wait("path and descriptor are refused", lambda: "held" not in shown("c1") and "Permission denied" in "".join(shown("c1")))
    wait("the mapping is refused", lambda: set(shown("c2")) == {"refused"})
    place.grantfs("restore", "--view", "one", "one")
    assert engine.command("exec", "c1", "sh", "-c", USE).stdout == "one\nnew\nfile\n"
    for pid in place.daemons().values():
        os.kill(pid, signal.SIGKILL)
    assert engine.command("exec", "c1", "cat", "/data/one/file").stdout == "one\n"
    assert denials() == before, denials()
    # The profile denies mounts without a report, and the same program without the profile mounts.
    script = "mount -t tmpfs tmpfs /bin && echo mounted"
    capable = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined"]
    free = engine.once([*capable, "--security-opt", "apparmor=unconfined", *engine.options("c3", "one:/data")], script)
    held = engine.once([*capable, *engine.options("c3", "one:/data")], script)
    assert free == "mounted\n" and "Permission denied" in held, (free, held)
    engine.command("rm", "-f", *engine.now, "c1", "c2")
    engine.command("volume", "rm", "one")
    return label


def hooked(place, engine):
    """The view of the hook, below the profile."""
    hooks.install(place, engine)
    before = denials()
    engine.command("run", "-d", "--name", "c4", "--network=none", *engine.more,
                   *hooks.annotations("destination=/data", f"path={place.base}/one"), *engine.image, "sleep", "1000")
    done = engine.command("exec", "c4", "sh", "-c", f"{USE}; cat /proc/self/attr/current")
    assert done.stdout.startswith("one\nnew\nfile\n") and done.stdout.endswith(" (enforce)\n"), done
    view = hooks.view(engine, "c4")
    place.grantfs("revoke", "--view", view, "one")
    assert "Permission denied" in engine.command("exec", "c4", "cat", "/data/one/file", ok=False).stderr
    place.grantfs("restore", "--view", view, "one")
    assert engine.command("exec", "c4", "cat", "/data/one/file").stdout == "one\n"
    assert denials() == before, denials()
    engine.command("rm", "-f", *engine.now, "c4")
    return done.stdout.splitlines()[-1]


def main():
    with started() as (place, engines):
        checked = 0
        try:
            for kind, trials in {Podman: [confined, hooked], Docker: [confined]}.items():
                engine = kind(place)
                engines.append(engine)
                for trial in trials:
                    began = time.monotonic()
                    label = trial(place, engine)
                    print(f"engines: {engine.name}: {trial.__name__}: passed below {label}, {time.monotonic() - began:.0f} s", flush=True)
                    checked += 1
            print(f"kernels: checked {checked} uses of volumes below profiles of containers")
        except (AssertionError, subprocess.TimeoutExpired):
            print("\n".join(denials()[-20:]))
            raise


main()
