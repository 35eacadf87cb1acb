"""Starts another project's sandbox with bubblewrap and with grantfs, compares the answers of sandbox-probes.sh, and revokes: compare.py PREFIX
runtime|codex PLACE, where PLACE is the environment of Python with the project."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREFIX, KIND, PLACE = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
GRANTFS = str(PREFIX / "bin/grantfs")
PROBES = Path(__file__).resolve().parent.parent.parent / "Tests/Fixtures/sandbox-probes.sh"


class Trial:
    """A workspace, a home and a store. Codex makes all of /tmp writable, and takes no home there."""

    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix="grantfs-bwrap.", dir=PLACE.parent))
        self.work, self.other, self.home = self.base / "work", self.base / "other", self.base / "home"
        shutil.copy(PROBES, self.base / "probes.sh")
        self.home.mkdir()
        self.variables = {**os.environ, "HOME": str(self.home), "GRANTFS_STORE": str(self.base / "store")}

    def make_files(self):
        for directory in (self.work, self.other):
            shutil.rmtree(directory, ignore_errors=True)
        for directory in (self.work / ".git/hooks", self.work / "secret", self.other):
            directory.mkdir(parents=True)
        (self.work / "file").write_text("content\n")
        (self.work / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (self.work / ".git/config").write_text("config\n")
        (self.work / "secret/key").write_text("key\n")
        (self.work / "denied").write_text("denied\n")
        (self.work / "link").symlink_to("file")
        (self.work / "out").symlink_to(self.other)
        (self.other / "file").write_text("other\n")

    def words(self, script):
        """The words that run a shell script in the project's sandbox."""
        if KIND == "codex":
            # The package has the program in its own directory.
            program = next(PLACE.glob("lib/python3*/site-packages/codex_cli_bin/bin/codex"))
            return [str(program), "sandbox", "-c", 'sandbox_mode="workspace-write"', "--", "bash", "-c", script]
        settings = self.base / "settings.json"
        files = {"denyRead": [f"{self.work}/secret", f"{self.work}/denied"], "allowWrite": [str(self.work)], "denyWrite": [f"{self.work}/.git"]}
        settings.write_text(json.dumps({"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": files}))
        return [str(PLACE / "bin/srt-py"), "--settings", str(settings), "-c", script]

    def environment(self, with_grantfs):
        path = "/usr/local/bin:/usr/bin:/bin"
        return {**self.variables, "PATH": f"{PREFIX}/share/grantfs/bin:{path}" if with_grantfs else path}

    def answers(self, with_grantfs):
        script = f"bash {self.base}/probes.sh {self.work} {self.other}"
        while True:
            self.make_files()
            done = subprocess.run(
                self.words(script), cwd=self.work, env=self.environment(with_grantfs), stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            # A mount of another stage ended meanwhile.
            if "Unable to apply mount flags" not in done.stderr:
                break
        lines = [line for line in done.stdout.splitlines() if ": " in line or line.endswith(":")]
        assert len(lines) >= 40, f"only {len(lines)} answers: {done}"
        return lines

    def grantfs(self, *words):
        return subprocess.run([GRANTFS, *words], env=self.variables, capture_output=True, text=True, check=True).stdout

    def revoke(self):
        """Takes the workspace back while a program in the sandbox has a file open."""
        self.make_files()
        look = "if cat /proc/self/fd/3 >/dev/null 2>&1; then echo open; else echo refused; fi; cat file 2>&1"
        program = subprocess.Popen(
            self.words(f"cd {self.work}; exec 3< file; while read -r line; do {look}; done"), cwd=self.work, env=self.environment(True),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

        def ask():
            program.stdin.write("look\n")
            program.stdin.flush()
            return [program.stdout.readline().strip() for _ in range(2)]

        assert ask() == ["open", "content"]
        # The daemon logs the command once the mount answers, and bubblewrap starts before that.
        deadline = time.monotonic() + 10
        while True:
            grants = json.loads(self.grantfs("list", "--json"))
            if all(grant["command"] for grant in grants) or time.monotonic() > deadline:
                break
        assert "work" in [grant["name"] for grant in grants] and all(grant["command"] for grant in grants), grants
        self.grantfs("revoke", "work", "--yes")
        refused = ask()
        assert refused == ["refused", "cat: file: Permission denied"], refused
        program.stdin.close()
        program.wait(30)


trial = Trial()
try:
    expected, answers = trial.answers(False), trial.answers(True)
    different = [pair for pair in zip(expected, answers) if pair[0] != pair[1]]
    assert not different and len(expected) == len(answers), f"with bubblewrap alone, and with grantfs: {different}"
    # That it was in use is seen in the log: the first sandbox has no grants.
    runs = trial.grantfs("log").count(f" {trial.work} ") or trial.grantfs("log").count("ran ")
    assert runs >= 1, "bwrap of grantfs was not started"
    trial.revoke()
    print(f"bwrap: {KIND}: {len(answers)} answers are the same, and a revocation takes an open file away")
finally:
    # The views end a moment after their sandboxes.
    deadline = time.monotonic() + 30
    while list(trial.base.glob("store/run/run-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(trial.base, ignore_errors=True)
