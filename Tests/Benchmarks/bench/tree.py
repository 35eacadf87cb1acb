"""A tree such as a source tree: directories of small text files, the same in every place and every run."""

import os
import pathlib
import random
import shutil
import subprocess
import tarfile

DIRECTORIES, FILES = 80, 40
PACKED = "packed"
ARCHIVE = PACKED + ".tar"
# It is in one file only, so that grep(1) reads all files and prints one match.
NEEDLE = "a needle in the last of them"


def fill(base):
    """The tree's files and directories, below a directory that is there."""
    source = random.Random(1)
    words = [bytes(source.choices(b"abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(500)]
    for directory in range(DIRECTORIES):
        # Some directories are nested in others.
        path = base / f"d{directory // 9}" / f"e{directory}"
        path.mkdir(parents=True)
        for file in range(FILES):
            lines = (b" ".join(source.choices(words, k=8)) for _ in range(source.randint(5, 120)))
            (path / f"file-{file}.txt").write_bytes(b"\n".join(lines) + b"\n")
    (base / "needle.txt").write_text(NEEDLE + "\n")


def make(directory):
    base = pathlib.Path(directory, "tree")
    if not base.exists():
        base.mkdir()
        fill(base)


def make_repository(directory):
    make(directory)
    base = directory + "/tree"
    if os.path.exists(base + "/.git"):
        return
    git = ["git", "-c", "safe.directory=*", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(git + words, cwd=base, check=True)


def make_archive(directory):
    """The archive lies where it is unpacked: reading it is part of the work, as natively."""
    if os.path.exists(directory + "/" + ARCHIVE):
        return
    base = pathlib.Path(directory, PACKED)
    base.mkdir()
    fill(base)
    with tarfile.open(directory + "/" + ARCHIVE, "w") as archive:
        archive.add(base, PACKED)
    shutil.rmtree(base)
