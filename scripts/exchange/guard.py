"""Runs a script's work in a process of its own, so that its end has a line even where a library ends the process, as
Rust does where it gets no memory."""
import glob
import os
import signal

from .files import remove
from .process import BAD_FILE, ENDING_SIGNALS, run, say


def run_guarded(main, path, out):
    """Returns the exit status of run(main, path), which writes `out`. Signals are passed on to the other process."""
    child = os.fork()
    if not child:
        os._exit(run(main, path))
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: os.kill(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status >= 0:
        return status
    folder = glob.escape(os.path.dirname(os.path.realpath(out)))
    for left in glob.glob(os.path.join(folder, f".decode-{child}-*.tmp")):
        remove(left)
    say(f"{path}: expected input that its library reads, found one at which {signal.Signals(-status).name} ended it, as "
        "where it needs more memory than the size of its files justifies")
    return BAD_FILE
