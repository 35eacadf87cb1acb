"""Containers that get their view by annotations and the hook of docs/guides/containers.md."""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from place import GRANTFS, PATH, PREFIX, run, wait

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs/guides/containers.md").read_text()


def read(name):
    # A path and an open descriptor, for ever.
    return f"exec 3</{name}/one/file; while :; do cat /{name}/one/file; cat /proc/self/fd/3 && echo held; sleep 0.1; done"


def install(place, engine):
    """Saves the page's hook, with other directories."""
    text = PAGE.split("```json\n", 1)[1].split("```", 1)[0]
    hook = json.loads(text)
    hook["hook"]["path"] = GRANTFS
    hook["hook"]["args"] = [str(place.base) if word == "/srv" else word for word in hook["hook"]["args"]] + ["--socket", str(place.socket)]
    (engine.base / "hooks").mkdir(exist_ok=True)
    (engine.base / "hooks/grantfs.json").write_text(json.dumps(hook))


def annotations(*given):
    """The words of `podman run` for annotations of the hook."""
    return [word for one in given for word in ("--annotation", f"grantfs.{one}")]


def view(engine, name):
    """The view of a container."""
    return "oci-" + engine.command("inspect", "-f", "{{.Id}}", name).stdout[:12]


def page(place, engine):
    """The lines of the page."""
    script = PAGE.split("```json\n", 1)[1].split("```sh\n", 1)[1].split("```", 1)[0]
    script = script.replace("/srv/", f"{place.base}/").replace(" debian ", " probe ").replace("podman run", "podman run --network=none")
    script = script.replace("rm -f", "rm -f -t 0")
    done = subprocess.run(["sh", "-ec", script], env={**engine.variables, "PATH": f"{PREFIX}/bin:{PATH}"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("file\n") == 2, done


def hooks(place, engine):
    install(place, engine)
    page(place, engine)
    outside = Path(tempfile.mkdtemp(prefix="outside.", dir=place.base.parent))
    (place.base / "leads-out").symlink_to(outside)

    def create(name, *given, more=()):
        place_inside = next((one.split("=")[1].strip("/") for one in given if one.startswith("destination=")), "")
        words = [*engine.more, *more, *annotations(*given)]
        engine.command("create", "--name", name, "--network=none", *words, *engine.image, "sh", "-c", read(place_inside))

    def volumes():
        return run("curl", "-sS", "--unix-socket", place.socket, "--data", "{}", "http://plugin/VolumeDriver.List").stdout.count('"oci-')

    def last(name):
        return "\n".join(engine.command("logs", "--tail", "8", name).stdout.splitlines()[-8:])

    path = f"path={place.base}/one"
    create("h1", "destination=/data", path)
    create("h2", "destination=/data", path, "ro=true", more=engine.maps[2])
    for name in ("h1", "h2"):
        engine.command("start", name)
        wait(f"{name} reads", lambda: "held" in last(name))
    place.grantfs("grant", "--view", view(engine, "h1"), place.base / "two")
    assert engine.command("exec", "h1", "cat", "/data/two/file").stdout == "two\n"
    assert engine.command("exec", "h2", "touch", "/data/one/new", ok=False).returncode != 0
    place.grantfs("revoke", "--view", view(engine, "h1"), "one")
    wait("the path and the descriptor are refused", lambda: "held" not in last("h1"))
    assert "held" in last("h2"), last("h2")
    # Each part ends, and the container goes on.
    for pid in place.daemons().values():
        os.kill(pid, signal.SIGKILL)
    place.end_plugin(signal.SIGKILL)
    place.start_plugin()
    assert engine.command("exec", "h2", "cat", "/data/one/file").stdout == "one\n"
    # After a kill, and once more after another start.
    engine.command("kill", "h1")
    wait("the view is gone", lambda: volumes() == 1)
    engine.command("start", "h1")
    wait("h1 reads again", lambda: "held" in last("h1"))
    assert engine.command("exec", "h1", "ls", "/data").stdout == "one\n"
    for number, (given, reason) in enumerate((
            (("destination=/data", "path=/etc"), "the hook does not allow it"),
            (("destination=/data", f"path={place.base}/leads-out"), "there is a link in the path"),
            (("destination=/data", f"path={place.base}/../etc"), "the hook does not allow it"),
            (("destination=/data", f"path={place.base}/none"), "there is no such directory"),
            (("destination=/data", "view=v2"), "unknown annotation"),
            (("destination=/bin/busybox", path), "Not a directory"))):
        create(f"h-{number}", *given)
        refused = engine.command("start", f"h-{number}", ok=False)
        assert refused.returncode != 0 and reason in refused.stderr, (given, refused)
    place.end_plugin(signal.SIGTERM)
    create("h3", "destination=/data", path)
    refused = engine.command("start", "h3", ok=False)
    assert refused.returncode != 0 and "the plugin of volumes does not answer" in refused.stderr, refused
    place.start_plugin()
    engine.command("start", "h3")
    engine.command("rm", "-af", *engine.now)
    wait("all views are gone", lambda: volumes() == 0)
    assert not place.mounts() and not list(outside.iterdir()), place.mounts()
    outside.rmdir()
