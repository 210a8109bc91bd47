"""Files: an input is a regular file, and an output takes the place of the old one as a whole."""
import contextlib
import json
import os
import shutil
import stat
import time

from .process import BAD_USAGE, FAILED, bad, shown, signals_wait

LFS = b"version https://git-lfs"
KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
         stat.S_IFSOCK: "a socket"}


# --- reading ---------------------------------------------------------------------------------------

def regular(path, what="a regular file"):
    """Returns `path`, which a library may open then. Fails where opening would wait or never end (a FIFO, a device),
    and where the file stands for another."""
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        bad(path, f"expected {what}, found {KINDS.get(kind, 'something else')}")
    with open(path, "rb") as file:
        if file.read(len(LFS)) == LFS:
            bad(path, f"expected {what}, found a Git LFS pointer; fetch the file it stands for: git lfs pull")
    return path


def read_json(*path):
    """Returns the table that a JSON file holds. Fails with the file's name if it holds none."""
    path = os.path.join(*path)
    with open(regular(path, "JSON"), encoding="utf-8") as file:
        try:
            found = json.load(file)
        except (ValueError, RecursionError) as error:
            bad(path, f"expected JSON, found {error}")
    if not isinstance(found, dict):
        bad(path, f"expected a table of JSON, found {shown(found)}")
    return found


def bytes_of(*paths):
    """Returns how many bytes files have, and the files of folders."""
    sizes = 0
    for path in paths:
        for entry in os.scandir(path) if os.path.isdir(path) else ():
            sizes += entry.stat().st_size if entry.is_file() else 0
        sizes += os.stat(path).st_size if os.path.isfile(path) else 0
    return sizes


# --- writing ---------------------------------------------------------------------------------------

def target_of(out):
    """Returns what `out` leads to through links. It need not exist, but its folder must."""
    target = os.path.realpath(out)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        bad(out, f"cannot write it: expected a folder to write it into, found no folder {folder}", FAILED)
    return target


def check_new_file(out, magic):
    """Fails unless `out` may be written: it does not exist, or is a file of this format that may be replaced."""
    target = target_of(out)
    if not os.path.lexists(target):
        return
    if not stat.S_ISREG(os.stat(target).st_mode) or not magic_is(target, magic):
        bad(out, f"expected a new file, or a {magic.decode()} file to replace, found another one, a folder, a device "
                 "or a FIFO", BAD_USAGE)
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        bad(out, "cannot replace it: it is read-only", FAILED)


def magic_is(path, magic):
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def check_new_folder(out):
    """Fails unless `out` may be written: it does not exist, or is empty."""
    target = target_of(out)
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        bad(out, "expected a folder that is new or empty, found another, or a file; name another one", BAD_USAGE)


def sync(path):
    """Makes sure that what `path` names is on the disk, as far as the file system can tell."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def keep_rights(made, old):
    """Gives the new file the mode and the group of the one that it replaces. Where the group cannot be kept, another
    group gets no rights."""
    try:
        os.chown(made, -1, old.st_gid)
        os.chmod(made, old.st_mode & 0o777)
    except PermissionError:
        os.chmod(made, old.st_mode & 0o707)


@contextlib.contextmanager
def replaced(out, n_bytes, make):
    """Yields the name of a file or folder that make(name) makes beside what `out` leads to. It takes the place of `out`
    at the end of the block; if the block fails, nothing is left, and the old one is as it was. Mode, group and links
    are kept. `decode`, too, removes files of such a name whose writer was killed. Fails, and names the bytes that were
    to be written, where the disk has no room."""
    target = target_of(out)
    made = os.path.join(os.path.dirname(target), f".decode-{os.getpid()}-{time.monotonic_ns():x}.tmp")
    try:
        free = shutil.disk_usage(os.path.dirname(target)).free
        if free < n_bytes:
            bad(out, f"cannot write its {n_bytes} bytes: expected as many on its disk, found {free}", FAILED)
        make(made)
        if os.path.lexists(target):
            keep_rights(made, os.stat(target))
        yield made
        names = [os.path.join(made, name) for name in os.listdir(made)] if os.path.isdir(made) else []
        for path in (*names, made):
            sync(path)
        os.replace(made, target)
        sync(os.path.dirname(target))
    except OSError as error:  # numpy gives no reason if a disk takes fewer bytes than it is given
        bad(out, f"cannot write its {n_bytes} bytes: {error.strerror or f'the disk took less: {error}'}", FAILED)
    finally:
        with signals_wait():
            remove(made)


def make_file(path):
    with open(path, "xb"):
        pass
