"""Owner maps: a container with a user namespace sees the owners of a directory's files on the host, and gives files those owners."""

import os

import hooks
from many import HOLDER
from place import COUNT, run, wait
from users import SHELL

# On the host: user, group and mode. No container maps the last user.
FILES = {
    "file": (33, 33, 0o600), "given": (0, 0, 0o600), "of-group": (0, 8, 0o640), "of-root": (0, 0, 0o600),
    "of-unmapped": (COUNT, COUNT, 0o666)}
LOOK = f"{SHELL}\nlook *"
USER = ["--user", "33:33", "--group-add", "8"]

# What the users of the container try, its output, and the files that it changes or makes.
ROOT_TRIES = {
    "write of-root": "yes", "cat file": "yes", "cat of-unmapped": "yes", "busybox chown 33:8 given": "yes",
    "busybox chmod 0640 given": "yes", "make by-root": "yes", "busybox chown 33:33 of-unmapped": "no",
    "busybox chmod 0600 of-unmapped": "no"}
ROOT_MADE = {"by-root": (0, 0, 0o644), "given": (33, 8, 0o640)}
USER_TRIES = {
    "write file": "yes", "cat of-root": "no", "cat of-group": "yes", "write of-group": "no", "write given": "yes", "make by-user": "yes",
    "busybox chgrp 8 by-user": "yes", "busybox chown 0 by-user": "no", "busybox chown 33:33 of-root": "no"}
USER_MADE = {"by-user": (33, 8, 0o644)}


def make_directory(parent):
    directory = parent / "one"
    directory.mkdir(parents=True)
    os.chown(directory, 33, 33)
    for name, (user, group, mode) in FILES.items():
        file = directory / name
        file.write_text("one\n")
        file.chmod(mode)
        os.chown(file, user, group)
    return directory


def lines(files):
    return [f"{name} {user} {group} {mode:o} regular file" for name, (user, group, mode) in sorted(files.items())]


def same_owners(engine, options, directory):
    """The container's root and its user 33 see, change and make files with the numbers that the host has."""
    files = dict(FILES)
    for user, tries, made in (([], ROOT_TRIES, ROOT_MADE), (USER, USER_TRIES, USER_MADE)):
        script = "\n".join(["cd /data/one", LOOK, *(f"try {words}" for words in tries), "look *"])
        output = engine.once([*options, *user], script).splitlines()
        inside = lambda: lines({**files, "of-unmapped": (65534, 65534, 0o666)})
        wanted = [*inside(), *(f"{result} {words}" for words, result in tries.items())]
        files.update(made)
        wanted += inside()
        assert output == wanted, (engine.name, options, output, wanted)
        found = run("sh", "-c", LOOK, cwd=directory).stdout.splitlines()
        assert found == lines(files), (engine.name, options, found, lines(files))


def descriptor_refused(place, engine, options, view):
    """A revocation refuses an open descriptor of user 33 for ever, and the path until the directory is restored. `view`: gives the view."""
    engine.command("run", "-d", *options, *USER, *engine.image, "sh", "-c", HOLDER)
    shown = lambda: (lambda done: done.stdout + done.stderr)(engine.command("logs", "owners"))
    by_path = lambda: engine.command("exec", *USER[:2], "owners", "cat", "/data/one/file", ok=False)

    def read_descriptor(times):
        engine.command("kill", "-s", "USR1", "owners")
        wait("the descriptor is refused", lambda: shown().count("ended 1") == shown().count("Permission denied") == times)
        assert shown().count("one\n") == 1, shown()

    wait("the file is read", lambda: "read one" in shown())
    place.grantfs("revoke", "--view", view(), "one")
    read_descriptor(1)
    assert "Permission denied" in by_path().stderr
    place.grantfs("restore", "--view", view(), "one")
    assert by_path().stdout == "one\nmore\n", by_path()
    read_descriptor(2)
    engine.command("rm", "-f", *engine.now, "owners")


def mapped_volume(place, engine):
    """A volume with the map of Docker's userns-remap."""
    directory = make_directory(place.base / "owners-volume")
    engine.create("owners", f"path={directory}", f"map=0:{place.first_uid}:{COUNT}", f"map-groups=0:{place.first_gid}:{COUNT}")
    options = engine.options("owners", "owners:/data")
    same_owners(engine, options, directory)
    descriptor_refused(place, engine, options, lambda: "owners")
    engine.command("volume", "rm", "owners")


def mapped_hook(place, engine):
    """The view of the hook with the map of its container, also with --userns=auto."""
    hooks.install(place, engine)
    for number, more in enumerate((engine.maps[2], engine.maps[4])):
        directory = make_directory(place.base / f"owners-hook{number}")
        annotations = hooks.annotations("destination=/data", f"path={directory}", "map=container")
        options = ["--name", "owners", "--network=none", *engine.more, *more, *annotations]
        same_owners(engine, options, directory)
        descriptor_refused(place, engine, options, lambda: hooks.view(engine, "owners"))
