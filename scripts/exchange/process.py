"""Ends a script with one of decode's statuses and one line, whatever its files hold."""
import contextlib
import errno
import os
import re
import resource
import signal
import sys

FAILED, BAD_USAGE, BAD_FILE, NO_MEMORY, INTERRUPTED = 1, 2, 3, 4, 130  # decode's exit statuses
REQUIREMENTS = os.path.join(os.path.dirname(__file__), "..", "requirements.txt")
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MESSAGE_LIMIT = 1000  # characters

# Libraries read these settings when they are loaded: no network, no reports, and no threads, each of which would
# reserve memory.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical",
                  TRANSFORMERS_NO_ADVISORY_WARNINGS="1", HF_HUB_DISABLE_PROGRESS_BARS="1",
                  TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


class Failure(Exception):
    """Ends the script with a status and a line: file, what, expected, found, what to do."""


class Interrupt(BaseException):
    """Raised where a signal asks the script to end. No library takes it for a failure of its own."""


def bad(path, text, status=BAD_FILE):
    raise Failure(status, f"{path}: {text}")


def shown(value):
    """Returns a value of a file for a message; of a list or table only its type, because a few bytes of a pickle can
    make these longer than any memory."""
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


def clean(text):
    """Returns one line without control characters, line separators, and characters that turn the direction of
    writing."""
    line = re.sub(r"\s*\n\s*", " ", str(text)[: 2 * MESSAGE_LIMIT].strip())
    line = line if len(line) <= MESSAGE_LIMIT else line[:MESSAGE_LIMIT] + " ..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


class Terminal:
    """Keeps standard error for say() alone. Meanwhile the output of libraries in C++ and Rust on descriptors 1 and 2 is
    dropped, because it may hold any bytes of a file."""
    stream = sys.stderr

    @classmethod
    @contextlib.contextmanager
    def taken(cls, stream=None):
        """A test reads the messages from `stream` instead."""
        while (null := os.open(os.devnull, os.O_RDWR)) <= 2:  # descriptors that the caller had closed
            pass
        kept = [os.dup(1), os.dup(2)]
        os.dup2(null, 1)
        os.dup2(null, 2)
        cls.stream = stream or open(kept[1], "w", encoding=sys.stderr.encoding if sys.stderr else "utf-8",
                                    errors="backslashreplace", closefd=False)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                cls.stream.flush()
            cls.stream = sys.stderr
            for number, fd in enumerate(kept, 1):
                os.dup2(fd, number)
            for fd in (*kept, null):
                os.close(fd)


def say(text):
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"{os.path.basename(sys.argv[0])}: {clean(text)}", file=Terminal.stream, flush=True)


# --- signals ---------------------------------------------------------------------------------------

@contextlib.contextmanager
def signals_raise():
    """Lets signals that end a process raise Interrupt, so that unfinished files are removed. Signals that are ignored,
    such as nohup's SIGHUP, stay so."""
    def interrupt(number, _frame):
        for other in kept:  # the first one is enough
            signal.signal(other, signal.SIG_IGN)
        raise Interrupt(signal.Signals(number).name)

    kept = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    try:
        for number, handler in kept.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_wait():
    """The block is done as a whole, however many signals come."""
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)


# --- memory ----------------------------------------------------------------------------------------

BASE_MEMORY = 1 << 30  # of libraries, and of tables of tokens as Python has them
_own_limit = resource.getrlimit(resource.RLIMIT_DATA)[0]


def limit_memory(n_bytes):
    """Lets the process take at most so many bytes more, beside BASE_MEMORY: as many as the sizes of the files justify.
    More raises MemoryError, in any library. Does nothing where the system does not say how much is taken already."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return
    limits = [used + BASE_MEMORY + n_bytes, _own_limit, resource.getrlimit(resource.RLIMIT_DATA)[1]]
    soft = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, limits[2]))


# --- the end ---------------------------------------------------------------------------------------

def ending(error, path):
    """Returns the status and the line of an exception. Libraries check what they read, so it is about `path`."""
    if isinstance(error, Failure):
        return error.args
    if isinstance(error, (Interrupt, KeyboardInterrupt)):
        return INTERRUPTED, f"{path}: interrupted, nothing is written"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return NO_MEMORY, (f"{path}: expected to need no more memory than its size justifies and {BASE_MEMORY >> 20} MiB, "
                           f"or than there is, found that it needs more: {error}")
    if isinstance(error, ModuleNotFoundError):
        return FAILED, f"needs the package {error.name}: python3 -m pip install -r {os.path.normpath(REQUIREMENTS)}"
    if isinstance(error, OSError):
        status = BAD_FILE if isinstance(error, FileNotFoundError) else FAILED
        return status, f"{error.filename or path}: {error.strerror or error}"
    return BAD_FILE, f"{path}: {type(error).__name__}: {error}"


def run(main, path, stream=None):
    """Returns the exit status of main(), which reads `path`; messages go to standard error, or `stream`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with Terminal.taken(stream), signals_raise():
        try:
            main()
            return 0
        except BaseException as error:  # Rust's panics, too, are no Exception
            with signals_wait():
                resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
                status, text = ending(error, path)
                say(text)
            return status
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
