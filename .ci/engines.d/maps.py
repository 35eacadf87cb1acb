"""Compares a mount with the granted directory for processes of a user namespace that maps every id to itself: maps.py PREFIX [CALLER]

Root makes such a namespace with the line “0 0 4294967295” in /proc/PID/uid_map and gid_map. Its processes have every capability there, and none outside.
`unshare --map-users=all --map-groups=all` of util-linux 2.39 does that. With CALLER only the callers run whose names contain that text.
A namespace with both maps counts as the host's (docs/threat-model.md), so differences of its processes are printed only.
Prints the operations whose results differ. Exit status: 0 none differs elsewhere, 1 some do.
"""

import difflib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PREFIX = Path(sys.argv[1]).resolve()
WHOLE = "0 0 4294967295"
USER = 58123
COUNT_AS_HOST = {"root inside", "user inside with capabilities", "user inside with two capabilities"}

# What a process tries in a directory. It is given to Python in the namespace.
PROBE = r'''
import fcntl, os, struct, sys
place = sys.argv[1]
os.chdir(place)
os.umask(0)
SETFLAGS, IMMUTABLE = 0x40086602, 0x10

def look(name):
    try:
        status = os.lstat(name)
        return f"{status.st_uid}:{status.st_gid} {status.st_mode:o}"
    except OSError as error:
        return error.strerror

def attempt(title, name, body):
    try:
        body()
        result = "yes"
    except OSError as error:
        result = error.strerror
    print(f"{title} {name}: {result}: {look(name)}")

def with_file(name, body, flags=os.O_RDWR):
    descriptor = os.open(name, flags)
    try:
        body(descriptor)
    finally:
        os.close(descriptor)

def flags(name, value):
    with_file(name, lambda file: fcntl.ioctl(file, SETFLAGS, struct.pack("l", value)), os.O_RDONLY)

for owner in (0, 1, %(user)d, 70000):
    for mode in ("4755", "2755", "6777", "2666", "600"):
        name = lambda what: f"{what}-{owner}-{mode}"
        attempt("read", name("read"), lambda: with_file(name("read"), lambda file: os.read(file, 9), os.O_RDONLY))
        attempt("write", name("write"), lambda: with_file(name("write"), lambda file: os.write(file, b"x")))
        attempt("truncate", name("truncate"), lambda: os.truncate(name("truncate"), 2))
        attempt("allocate", name("allocate"), lambda: with_file(name("allocate"), lambda file: os.posix_fallocate(file, 0, 9000)))
        attempt("copy", name("copy"), lambda: with_file("source", lambda source: with_file(name("copy"), lambda file: os.copy_file_range(source, file, 5)), os.O_RDONLY))
        attempt("chown-nothing", name("nothing"), lambda: os.chown(name("nothing"), -1, -1))
        attempt("chown", name("chown"), lambda: os.chown(name("chown"), 5, 5))
        attempt("chgrp", name("chgrp"), lambda: os.chown(name("chgrp"), -1, 8))
        attempt("chmod", name("chmod"), lambda: os.chmod(name("chmod"), 0o6755))
        attempt("user-attribute", name("attribute"), lambda: os.setxattr(name("attribute"), "user.x", b"x"))
        attempt("acl", name("acl"), lambda: os.setxattr(name("acl"), "system.posix_acl_access", struct.pack("<I" + "HHI" * 5, 2, 1, 6, 0xffffffff, 2, 6, 5, 4, 4, 0xffffffff, 16, 6, 0xffffffff, 32, 4, 0xffffffff)))
        attempt("immutable", name("flags"), lambda: flags(name("flags"), IMMUTABLE))
        try:
            flags(name("flags"), 0)
        except OSError:
            pass
        attempt("times", name("times"), lambda: os.utime(name("times"), (1, 1)))
        attempt("link", name("linked"), lambda: os.link(name("link"), name("linked")))
        attempt("remove", name("remove"), lambda: os.unlink(name("remove")))
    parent = f"in-{owner}"
    for mode in (0o6755, 0o2755, 0o4755, 0o644):
        attempt("create", f"{parent}/new{mode:o}", lambda: os.close(os.open(f"{parent}/new{mode:o}", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)))
        attempt("make-fifo", f"{parent}/fifo{mode:o}", lambda: os.mknod(f"{parent}/fifo{mode:o}", mode | 0o010000))
    attempt("make-directory", f"{parent}/d", lambda: os.mkdir(f"{parent}/d", 0o2755))
    attempt("make-device", f"{parent}/device", lambda: os.mknod(f"{parent}/device", 0o020600, os.makedev(1, 3)))
    attempt("make-whiteout", f"{parent}/whiteout", lambda: os.mknod(f"{parent}/whiteout", 0o020600, 0))
# The rest of the filesystem, which has space that is reserved for root.
size = 0
try:
    with_file("filling", lambda file: [os.write(file, bytes(1 << 16)) and os.fdatasync(file) for _ in range(1000)], os.O_CREAT | os.O_RDWR)
except OSError as error:
    size = error.strerror
print("reserve:", size, os.stat("filling").st_size >> 20, "MB")
'''

KINDS = ("read", "write", "truncate", "allocate", "copy", "nothing", "chown", "chgrp", "chmod", "attribute", "acl", "flags", "times", "link", "remove")


def make_tree(directory):
    directory.mkdir()
    directory.chmod(0o1777)
    (directory / "source").write_text("content\n")
    for owner in (0, 1, USER, 70000):
        for mode in ("4755", "2755", "6777", "2666", "600"):
            for kind in KINDS:
                file = directory / f"{kind}-{owner}-{mode}"
                file.write_text("content\n")
                os.chown(file, owner, owner)
                file.chmod(int(mode, 8))
        parent = directory / f"in-{owner}"
        parent.mkdir()
        os.chown(parent, owner, owner)
        parent.chmod(0o2777)


def namespace(users, groups=None):
    """A process that sleeps in a user namespace with these maps."""
    process = subprocess.Popen(["unshare", "--user", "sh", "-c", "echo made; exec sleep 1000"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "made\n"
    Path(f"/proc/{process.pid}/uid_map").write_text(users)
    Path(f"/proc/{process.pid}/gid_map").write_text(groups or users)
    return process


def enter(process, *more):
    return ["nsenter", "-U", "-t", f"{process.pid}", "-S", "0", "-G", "0", *more]


def make_filesystem(base, name):
    image, place = base / f"{name}.img", base / name
    subprocess.run(["truncate", "-s", "60M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-m", "20", "-I", "256", image], check=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    place.chmod(0o755)
    return place


def has_resource():
    """Whether this machine's root may use reserved space. A container's bounding set can be without."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd:"))
    return bool(int(line.split()[1], 16) >> 24 & 1)


def main():
    base = Path(tempfile.mkdtemp(prefix="grantfs-map-"))
    base.chmod(0o755)
    variables = {**os.environ, "GRANTFS_STORE": str(base / "store")}
    grantfs = lambda *words: subprocess.run([PREFIX / "bin/grantfs", *words], check=True, env=variables, stdout=subprocess.DEVNULL)
    processes, places, differing = [], [], 0
    try:
        rights = ["setpriv", "--reuid", f"{USER}", "--regid", f"{USER}", "--clear-groups"]
        asked = subprocess.run([*rights, "unshare", "--user", "tee", "/proc/self/uid_map"], input=WHOLE, capture_output=True, text=True)
        print(f"a user who asks for the map {WHOLE}: {asked.stderr.strip() or 'has it'}")
        with_capabilities = lambda names: [*rights, "--inh-caps", names, "--ambient-caps", names]
        kept = with_capabilities("+chown,+dac_override,+fowner,+fsetid,+setfcap,+linux_immutable,+mknod,+sys_admin" + has_resource() * ",+sys_resource")
        few = with_capabilities("+dac_override,+fsetid")
        whole = namespace(WHOLE)
        split = namespace("0 0 1\n1 1 4294967294")
        some = namespace("0 70000 65536")
        users = namespace(WHOLE, "0 70000 65536")
        processes += [whole, split, some, users]
        callers = {
            "root outside": [], "user outside with capabilities": kept, "user outside with two capabilities": few,
            "root inside": enter(whole), "user inside with capabilities": enter(whole, *kept), "user inside": enter(whole, *rights),
            "user inside with two capabilities": enter(whole, *few),
            "root inside, map in two lines": enter(split), "user inside with capabilities, map in two lines": enter(split, *kept),
            "user inside with two capabilities, map in two lines": enter(split, *few),
            "user inside with two capabilities, map of a container": enter(some, *few),
            "root inside, only users mapped whole": enter(users), "user inside with capabilities, only users mapped whole": enter(users, *kept)}
        if len(sys.argv) > 2:
            callers = {name: words for name, words in callers.items() if sys.argv[2] in name}
        for number, (caller, words) in enumerate(callers.items()):
            seen = {}
            for kind in ("native", "mount"):
                place = make_filesystem(base, f"{kind}{number}")
                places.append(place)
                make_tree(place / "tree")
                directory = place / "tree"
                if kind == "mount":
                    (base / f"view{number}").mkdir()
                    grantfs("grant", "--view", f"map{number}", str(directory))
                    grantfs("mount", f"map{number}", str(base / f"view{number}"), "-o", "allow_other")
                    places.append(base / f"view{number}")
                    directory = base / f"view{number}" / "tree"
                done = subprocess.run([*words, "/usr/bin/python3", "-c", PROBE % {"user": USER}, directory], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                # As the host sees the files afterwards.
                host = [f"{path.name} {path.lstat().st_uid}:{path.lstat().st_gid} {path.lstat().st_mode:o}" for path in sorted((place / "tree").rglob("*"))]
                seen[kind] = [*done.stdout.splitlines(), *host]
            lines = [line for line in difflib.unified_diff(seen["native"], seen["mount"], "native", "mount", lineterm="", n=0) if not line.startswith("@@")]
            space = {kind: lines[-len(host) - 1] for kind, lines in seen.items()}
            print(f"== {caller}: {space['native']} and {space['mount']}; {len(seen['native'])} results, {len(lines[2:])} lines differ")
            print("\n".join(lines[2:]))
            if caller not in COUNT_AS_HOST:
                differing += len(lines[2:])
        return 1 if differing else 0
    finally:
        for place in reversed(places):
            subprocess.run(["umount", "-l", place])
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run(["rm", "-rf", base])


sys.exit(main())
