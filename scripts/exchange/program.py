"""What is asked of decode, where it is there: beside the scripts, or on PATH."""
import os
import shutil
import subprocess

from .process import BAD_FILE, BAD_USAGE, FAILED, NO_MEMORY, bad


def find():
    """decode's path; None: it is not there."""
    built = os.path.join(os.path.dirname(__file__), "..", "..", "decode")
    return built if os.access(built, os.X_OK) else shutil.which("decode")


def ask(*args):
    """A finished run of decode; its output is text."""
    return subprocess.run([find(), *args], capture_output=True, stdin=subprocess.DEVNULL, encoding="utf-8",
                          errors="backslashreplace")


def last_line(done):
    """What a run said last, without its name."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("decode: ").removeprefix("error: ") if lines else f"status {done.returncode}"


def check(path, *options):
    """Fails, with decode's line, unless `decode info` with the options reads a GGUF file."""
    done = ask("info", *options, "--", path)
    if done.returncode:
        status = done.returncode if done.returncode in (FAILED, BAD_USAGE, BAD_FILE, NO_MEMORY) else BAD_FILE
        bad(path, f"decode does not read it: {last_line(done).removeprefix(f'{path}: ')}", status)
