"""Runs of decode, where it is found: beside the scripts, or on PATH."""
import json
import os
import shutil
import subprocess

from .process import BAD_FILE, BAD_USAGE, FAILED, NO_MEMORY


def find():
    """Returns decode's path; None: it is not found."""
    built = os.path.join(os.path.dirname(__file__), "..", "..", "decode")
    return built if os.access(built, os.X_OK) else shutil.which("decode")


def ask(*args, text=""):
    """Returns a finished run of decode, which reads a text; its output is text."""
    done = subprocess.run([find(), *args], capture_output=True, input=text.encode())
    done.stdout, done.stderr = (said.decode(errors="backslashreplace") for said in (done.stdout, done.stderr))
    return done


def last_line(done):
    """Returns the last line of a run, without the program's name."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("decode: ").removeprefix("error: ") if lines else f"status {done.returncode}"


def refusal(path, *options):
    """Returns why decode does not run a GGUF file, and with which status, by `decode info` with the options. None: it
    does."""
    done = ask("info", "--format", "json", *options, "--", path)
    if done.returncode:
        return last_line(done).removeprefix("info: ").removeprefix(f"{path}: "), (
            done.returncode if done.returncode in (FAILED, BAD_USAGE, BAD_FILE, NO_MEMORY) else BAD_FILE)
    found = json.loads(done.stdout)
    found = found[0] if isinstance(found, list) else found
    why = found.get("does_not_run")
    return (why, BAD_FILE) if why else None
