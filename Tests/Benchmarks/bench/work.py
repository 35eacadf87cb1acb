"""Rows of real work: what people do all day in a directory, each the programs' own time as a whole."""

import os
import pathlib
import shutil
import subprocess
import sys

from timing import spawn
import tree

GIT = ["git", "-c", "safe.directory=*", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0", "-c", "advice.detachedHead=false"]
FILES = 60
MODULES = 150


def rows(workload):
    """`workload` makes a row of a name, what prepares, what runs and is timed, and a program that it needs."""
    return [
        workload("work: git clone", _make_packed, _clone, "git"),
        workload("work: git checkout, there and back", _make_branches, _checkout, "git"),
        workload("work: git grep", tree.make_repository, _grep, "git"),
        workload("work: configure and build", _make_project, _build, "gcc"),
        workload("work: rsync", tree.make, _rsync, "rsync"),
        workload("work: tar", tree.make, _tar, "tar"),
        workload("work: compileall", _make_modules, _compile, "python3"),
        workload("work: rm", tree.make, _remove, "cp"),
    ]


def _make_packed(directory):
    tree.make_repository(directory)
    # Repositories are usually packed after a clone.
    subprocess.run(GIT + ["repack", "-adq"], cwd=directory + "/tree", check=True)


def _clone(directory):
    taken = spawn(GIT + ["clone", "-q", "--no-local", "tree", "clone"], directory)
    shutil.rmtree(directory + "/clone")
    return taken


def _make_branches(directory):
    base = pathlib.Path(directory, "branches")
    if base.exists():
        return
    base.mkdir()

    def git(*words):
        subprocess.run(GIT + list(words), cwd=base, check=True, stdout=subprocess.DEVNULL)

    git("init", "-q")
    tree.fill(base)
    git("add", "-A")
    git("commit", "-qm", "one")
    git("tag", "one")
    for number, path in enumerate(sorted(base.rglob("*.txt"))):
        if number % 3 == 0:
            path.write_text(f"another {number}\n" * 40)
        elif number % 10 == 1:
            path.unlink()
    git("add", "-A")
    git("commit", "-qm", "two")
    git("tag", "two")
    git("repack", "-adq")


def _checkout(directory):
    return sum(spawn(GIT + ["checkout", "-q", tag], directory + "/branches") for tag in ("one", "two"))


def _grep(directory):
    return spawn(GIT + ["grep", "-c", tree.NEEDLE], directory + "/tree")


def _make_project(directory):
    base = pathlib.Path(directory, "project")
    if base.exists():
        return
    base.mkdir()
    for number in range(FILES):
        base.joinpath(f"part{number}.h").write_text(f"int part{number}(int);\n")
        used = "".join(f'#include "part{other}.h"\n' for other in range(max(0, number - 5), number + 1))
        called = " + ".join(f"part{other}(number - 1)" for other in range(max(0, number - 5), number)) or "number"
        base.joinpath(f"part{number}.c").write_text(f"#include <stdio.h>\n#include <string.h>\n{used}int part{number}(int number) {{ return number < 1 ? {number} : {called}; }}\n")
    base.joinpath("main.c").write_text(f'#include <stdio.h>\n#include "part{FILES - 1}.h"\nint main(void) {{ printf("%d\\n", part{FILES - 1}(2)); }}\n')
    base.joinpath("configure").write_text(
        "set -e\n: > config.h\n"
        "for header in stdio.h stdlib.h string.h unistd.h nothing-of-the-kind.h sys/stat.h; do\n"
        "    echo \"#include <$header>\" > conftest.c\n"
        "    if cc -c conftest.c -o conftest.o 2> conftest.err; then echo \"#define HAVE $header\" >> config.h; fi\n"
        "    rm -f conftest.*\n"
        "done\n")
    objects = " ".join(f"part{number}.o" for number in range(FILES)) + " main.o"
    base.joinpath("Makefile").write_text(f"program: {objects}\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -O1 -c -o $@ $<\nclean:\n\trm -f program config.h *.o\n")


def _build(directory):
    base = directory + "/project"
    spawn(["make", "-s", "clean"], base)
    return spawn(["sh", "-c", "sh ./configure && make -s -j2 && ./program"], base)


def _rsync(directory):
    taken = spawn(["rsync", "-a", "tree/", "copy/"], directory)
    shutil.rmtree(directory + "/copy")
    return taken


def _tar(directory):
    taken = spawn(["tar", "-cf", "tree.tar", "tree"], directory)
    os.unlink(directory + "/tree.tar")
    return taken


def _make_modules(directory):
    base = pathlib.Path(directory, "modules")
    if base.exists():
        return
    base.mkdir()
    for number in range(MODULES):
        functions = "".join(f"def function{other}(a, b={other}):\n    return [a + b * {number} for _ in range({other})]\n\n\n" for other in range(30))
        base.joinpath(f"module{number}.py").write_text(f'"""Module {number}."""\n\n\n{functions}')


def _compile(directory):
    shutil.rmtree(directory + "/modules/__pycache__", ignore_errors=True)
    # An interpreter that other users may run, too.
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    return spawn([python, "-m", "compileall", "-q", "-f", "modules"], directory)


def _remove(directory):
    subprocess.run(["cp", "-a", "tree", "copy"], cwd=directory, check=True)
    return spawn(["rm", "-rf", "copy"], directory)
