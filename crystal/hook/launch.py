"""Start the worker from the hook.

Like ``event.py``, it imports what the hook may import, and nothing of this package.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


DEADLINE_SECONDS = 1.0
"""The user waits for the hook, and the note is as good without a size."""


class _Silent:
    """Ignore any error, like ``contextlib.suppress``, whose import would cost start-up time."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: "type[BaseException] | None", *_: object) -> bool:
        return kind is not None and issubclass(kind, Exception)


def in_time(step: "Callable[..., object]", *values: object) -> object:
    """Return a step's result; None if it fails, or has not ended after ``DEADLINE_SECONDS``. It is then abandoned."""
    from _thread import allocate_lock, start_new_thread

    results: list[object] = []
    is_over = allocate_lock()

    def run() -> None:
        with _Silent():
            results.append(step(*values))
        is_over.release()

    is_over.acquire()
    start_new_thread(run, ())
    is_over.acquire(timeout=DEADLINE_SECONDS)
    return results[0] if results else None


def flush(path: str) -> bool:
    """Flush a note and its name to the disk. Called before exit only if a message confirms that the note is kept."""
    for name in (path, os.path.dirname(path)):
        number = os.open(name, os.O_RDONLY)
        os.fsync(number)
        os.close(number)
    return True


def start_worker(
    env: "dict[str, str]", note: "str | None", payload: "dict[str, object]", command: "list[str]", program: str
) -> "Callable[[], object]":
    """Start the worker detached, in a separate session that receives no signals meant for the client.

    Args:
        env: The worker's environment.
        note: The path of the note to flush to the disk first.
        payload: The client's input; emptied in the worker's process.
        command: The command that starts an interpreter with the worker.
        program: The program that this interpreter would run.

    Returns:
        A function that waits for the worker's end: it holds the writing end of a pipe until then.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _detach(note, writing)
                if _is_fit_to_work():
                    payload.clear()
                    _work_here(env, command, program)
                os.execve(command[0], command, env)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)

    def wait() -> None:
        os.dup2(reading, 0)  # so that a signal ends this wait too
        os.read(0, 1)

    return wait


def _detach(note: "str | None", writing: int) -> None:
    """Leave the client's folder, streams and open files; flush the note to the disk."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    if writing != 3:
        os.dup2(writing, 3)
    os.set_inheritable(3, True)
    try:
        others = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        others = list(range(256))
    for number in others:
        if number > 3:
            with _Silent():
                os.close(number)
    if note:
        with _Silent():
            flush(note)


def _is_fit_to_work() -> bool:
    """Return whether the worker can run in this interpreter; macOS needs a new program after each fork."""
    return sys.platform == "linux" and sys.getfilesystemencoding() == "utf-8" and sys.flags.isolated == 1


def _work_here(env: "dict[str, str]", command: "list[str]", program: str) -> None:
    """Run the worker in this process and exit, because another interpreter's start takes as long as a hook."""
    import _signal  # type: ignore[import-not-found]

    for name in ("SIGTERM", "SIGHUP", "SIGALRM"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    code = 1
    try:
        import site

        os.environ.clear()
        os.environ.update(env)
        sys.argv = command[-2:]
        site.main()
        exec(program, {"__name__": "__main__"})  # noqa: S102 - as the program of a process of its own
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        with _Silent():
            _finish()
        os._exit(code)  # without dismantling every module, which takes a tenth of a turn


def _finish() -> None:
    """Do what an interpreter does at its end, except freeing its memory."""
    import atexit

    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # noqa: SLF001 - neither has a public name
    atexit._run_exitfuncs()  # noqa: SLF001
