"""What a figure was measured on."""

import datetime
import os
import pathlib
import platform
import subprocess


def describe(base):
    information = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in information if line.startswith("model name")), platform.machine())
    found = subprocess.run(["df", "--output=fstype", base], capture_output=True, text=True, check=True)
    return {
        "date": datetime.date.today().isoformat(),
        "kernel": platform.release().split("-")[0],
        "processor": model,
        "cores": os.cpu_count(),
        "filesystem": found.stdout.split()[-1],
        # Other programs on more than about half of the cores make every figure less reliable.
        "load": os.getloadavg()[0],
    }
