"""Runs containers with volumes of grantfs in Docker and Podman, revokes, and ends each part while they run: try.py PREFIX [--hundred]"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hooks
import many
import owners
import postgres
import rootless_docker
import users
from place import PATH, PREFIX, Docker, Podman, RemappedDocker, run, started, wait

# Reads a file by its path and by an open descriptor, for ever.
READER = "exec 3</data/one/file; while :; do cat /data/one/file; ls /data; cat /proc/self/fd/3 && echo held; sleep 0.1; done"


def volumes(place, engine):
    """Made, used, extended, revoked, restored, inspected and removed. Another container is not disturbed."""
    engine.create("v1", f"path={place.base}/one", "ttl=2h", "hide=.env")
    engine.create("v2", f"path={place.base}/one", "ro=true")
    refused = engine.create("bad", f"path={place.base}/none", ok=False)
    assert refused.returncode != 0 and "there is no such directory" in refused.stderr, refused
    refused = engine.create("bad", "colour=red", ok=False)
    assert refused.returncode != 0 and "unknown option" in refused.stderr, refused
    shown = json.loads(engine.command("volume", "inspect", "v1").stdout)[0]
    assert shown["Status"]["grants"][0]["rules"]["hide"] == [".env"], shown
    engine.command("run", "-d", *engine.options("c1", "v1:/data"), *engine.image, "sh", "-c", READER)
    engine.command("run", "-d", *engine.options("c2", "v2:/data"), *engine.image, "sh", "-c", READER)
    last = lambda name: "\n".join((lambda done: done.stdout + done.stderr)(engine.command("logs", "--tail", "8", name)).splitlines()[-8:])
    for name in ("c1", "c2"):
        wait(f"{name} reads", lambda: "held" in last(name))
    refused = engine.command("exec", "c2", "touch", "/data/one/new", ok=False)
    assert refused.returncode != 0 and not (place.base / "one/new").exists(), refused
    script = "mount -o remount,rw /data && mount -o remount,rw,bind /data; touch /data/one/new"
    refused = engine.once(["--cap-add", "SYS_ADMIN", *engine.options("c4", "v2:/data:ro")], script)
    assert "Read-only" in refused and not (place.base / "one/new").exists(), refused
    place.grantfs("grant", "--view", "v1", place.base / "two")
    wait("the added directory is shown", lambda: "two" in last("c1"))
    engine.command("run", "-d", *engine.options("c3", "v1:/data"), *engine.image, "mapping", "/data/one/file")
    wait("the mapping is read", lambda: "o" in last("c3").split())
    place.grantfs("revoke", "--view", "v1", "one")
    wait("the path and the open descriptor are refused", lambda: last("c1").count("Permission denied") >= 2 and "held" not in last("c1"))
    wait("the mapping is refused", lambda: set(last("c3").split()) == {"refused"})
    assert "held" in last("c2"), last("c2")
    assert engine.command("exec", "c1", "cat", "/data/two/file").stdout == "two\n"
    place.grantfs("restore", "--view", "v1", "one")
    wait("the path is readable again", lambda: engine.command("exec", "c1", "cat", "/data/one/file", ok=False).stdout == "one\n")
    assert engine.command("volume", "rm", "v1", ok=False).returncode != 0
    # Another engine does not know of the containers.
    remove = ["curl", "-sS", "--unix-socket", place.socket, "-X", "POST", "--data", '{"Name":"v1"}', "http://plugin/VolumeDriver.Remove"]
    assert "it is in use by process" in run(*remove).stdout
    engine.command("rm", "-f", *engine.now, "c1", "c3")
    engine.command("volume", "rm", "v1")
    assert not json.loads(place.grantfs("list", "--all", "--view", "v1", "--json", ok=False).stdout or "[]")


def modes(place, engine):
    """Letters and profiles of an engine that a volume takes, and those that it refuses. This kernel has neither SELinux nor AppArmor."""
    engine.create("m1", f"path={place.base}/other")
    use = "cat /data/other/file && touch /data/other/new && rm /data/other/new && busybox grep Seccomp: /proc/self/status"
    for letters in ("", ":z", ":Z"):
        assert engine.once(engine.options("modes", f"m1:/data{letters}"), use) == "other\nSeccomp:\t2\n", letters
    assert engine.once(["--security-opt", "seccomp=unconfined", *engine.options("modes", "m1:/data")], use) == "other\nSeccomp:\t0\n"
    if engine.name == "podman":
        refused = engine.command("run", "-d", *engine.maps[2], *engine.options("modes", "m1:/data:U"), *engine.image, "true", ok=False)
        assert "failed to chown" in refused.stderr and os.stat(place.base / "other/file").st_uid == 0, refused
        engine.command("rm", "-f", "modes", ok=False)
    # An engine copies the image's directory into an empty volume, with its mode.
    engine.create("m2")
    if engine.name == "docker":
        refused = engine.command("run", "-d", *engine.options("modes", "m2:/data"), *engine.image, "true", ok=False)
        assert "failed to chmod" in refused.stderr, refused
        engine.command("rm", "-f", "modes", ok=False)
    engine.command("run", "-d", *engine.options("modes", "m2:/data:nocopy"), *engine.image, "sleep", "1000")
    assert engine.command("exec", "modes", "ls", "/data").stdout == ""
    place.grantfs("grant", "--view", "m2", place.base / "other")
    assert engine.command("exec", "modes", "cat", "/data/other/file").stdout == "other\n"
    engine.command("rm", "-f", *engine.now, "modes")
    engine.command("volume", "rm", "m1", "m2")


def guide(place, engine):
    """The ten lines of docs/guides/containers.md, with other directories and another image."""
    page = (Path(__file__).resolve().parent.parent.parent / "docs/guides/containers.md").read_text()
    lines = page.split("```sh\n", 1)[1].split("```", 1)[0].splitlines()
    assert len(lines) == 10, lines
    # The plugin runs already.
    assert lines[0].startswith("systemctl ")
    script = "\n".join(lines[1:]).replace("/srv/", f"{place.base}/").replace(" debian ", " probe ").replace("-d grantfs", f"-d {engine.driver}")
    done = subprocess.run(
        ["sh", "-c", f"docker() {{ /usr/bin/docker -H '{engine.host}' \"$@\"; }}\n"
         + script.replace("docker run", "docker run --network=none")],
        env={**place.variables, "PATH": f"{PREFIX}/bin:{PATH}"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr.count("Permission denied") == 1, (done.stdout, done.stderr)
    assert done.stdout.count("file\n") == 2, done.stdout


def restarts(place, engine):
    """Each part ends, also by kill -9, while c2 reads: it never sees an error."""
    place.end_plugin(signal.SIGKILL)
    place.start_plugin()
    place.end_plugin(signal.SIGTERM)
    place.start_plugin()
    daemons = lambda: set(place.daemons().values())
    before = daemons()
    place.grantfs("upgrade", "--all")
    for pid in daemons():
        os.kill(pid, signal.SIGKILL)
    wait("another daemon serves", lambda: daemons() and not daemons() & before)
    assert engine.command("exec", "c2", "cat", "/data/one/file").stdout == "one\n"
    done = engine.command("logs", "c2")
    assert "not connected" not in done.stdout + done.stderr and "rror" not in done.stdout + done.stderr, (done.stdout + done.stderr)[-2000:]
    engine.restart()
    # Docker ends its containers then.
    engine.command("rm", "-f", *engine.now, "c2")
    engine.command("volume", "rm", "v2")
    engine.create("v3")
    engine.restart()
    assert "v3" in engine.command("volume", "ls", "-q").stdout.split()
    engine.command("volume", "prune", "-f", *(["-a"] if "-a" in engine.command("volume", "prune", "--help").stdout else []))
    if "v3" in engine.command("volume", "ls", "-q").stdout.split():
        engine.command("volume", "rm", "v3")
    assert not place.mounts(), place.mounts()


# What runs in each engine, in this order.
TRIALS = {
    Docker: [users.mapped, guide, volumes, restarts, modes, postgres.deaths],
    Podman: [users.mapped, hooks.hooks, owners.mapped_hook, volumes, restarts, modes],
    RemappedDocker: [users.mapped, owners.mapped_volume],
}
# Those of --hundred, after the others.
LONG = {Docker: [many.hundred], Podman: [many.hundred, many.starts], RemappedDocker: []}


def main():
    # The end of .ci/engines' time must not leave anything either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def passed(name, trial, *where):
        began = time.monotonic()
        reason = trial(*where)
        print(f"engines: {name}: {trial.__name__}: " + (f"left out: {reason}" if reason else f"passed, {time.monotonic() - began:.0f} s"), flush=True)

    with started() as (place, engines):
        for kind, trials in TRIALS.items():
            engine = kind(place)
            engines.append(engine)
            for trial in [*trials, *(LONG[kind] if "--hundred" in sys.argv else [])]:
                passed(engine.name, trial, place, engine)
        passed("podman", users.rootless, place)
        passed("docker", rootless_docker.rootless, place)


main()
