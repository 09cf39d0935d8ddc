# SPDX-License-Identifier: Apache-2.0
"""The command `python` of warm_python.py: has a server run a program, and ends as that does.

It imports only what is built in or small: a start costs a hundredth of a second.
"""

from __future__ import annotations

import _signal as signal
import _socket as socket
import array
import marshal
import os
import resource
import sys

# An interpreter, or a library that it has loaded, reads these at its start: a server serves only programs with the same
# values.
READ_AT_START = (
    *("PYTHON", "LC_", "LANG", "TZ", "HOME", "GLIBC_TUNABLES", "MALLOC_", "LD_LIBRARY_PATH"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "DNNL_", "ONEDNN_", "NUMEXPR_", "ATEN_", "USE_"),
    *("TORCH", "PYTORCH", "NPY_", "NUMPY_", "CUDA_", "CUBLAS_", "NVIDIA_", "NCCL_", "TRITON_"),
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_"),
)
# Of those, what is done after the fork; and what is of one program only, and nothing but that program reads it.
DONE_LATER = ("PYTHONPATH", "TORCHELASTIC_RUN_ID")
# A program with another one of these is started: nothing of it can be done later. `assay dump` preloads its probes in
# all programs; those that use ggml or ATB are not for this command.
LOADER, HARMLESS_PRELOADS = "LD_", ("libggml_probe", "libatb_probe")

# What is sent to a running program. The rest stops a process, or comes from its own fault.
FORWARDED = [number for name, number in vars(signal).items() if name in (
    *("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGABRT", "SIGWINCH"),
)]  # fmt: skip
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def place() -> tuple[object, ...]:
    """What a process inherits and cannot be given later."""
    names = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "pid", "user")]
    return (sorted(os.sched_getaffinity(0)), names, os.geteuid(), os.getegid())


def key_of(environment: dict[bytes, bytes], kind: str) -> bytes:
    """What the requests that one server serves have in common."""
    starts, others = tuple(os.fsencode(p) for p in READ_AT_START), [os.fsencode(name) for name in DONE_LATER]
    read = sorted(item for item in environment.items() if item[0].startswith(starts) and item[0] not in others)
    return marshal.dumps((kind, read))


def socket_of(folder: str, key: bytes) -> str:
    number = 0xCBF29CE484222325  # FNV-1a
    for byte in key:
        number = (number ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{folder}/{number:016x}"


def _is_to_be_started(words: list[str], environment: dict[bytes, bytes], expected: object) -> bool:
    """Whether a server cannot do this."""
    for name, value in environment.items():
        preloads = [os.path.basename(path) for path in os.fsdecode(value).split(":")] if name == b"LD_PRELOAD" else [""]
        if all(path.startswith(HARMLESS_PRELOADS) for path in preloads):
            continue
        if name.startswith(os.fsencode(LOADER)) and not name.startswith(b"LD_LIBRARY_PATH"):
            return True
    if not words or place() != expected:
        return True
    if words[0] in ("-c", "-m"):
        return len(words) < 2
    if words[0].startswith("-") or not words[0].endswith(".py"):
        return True
    try:
        with open(words[0], "rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        return True


def _descriptors() -> list[int]:
    """What a program would inherit."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:  # that of the listing
            pass
    return sorted(found)


def _connect(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _connect_to_server(folder: str, key: bytes, environment: dict[bytes, bytes]) -> socket.socket | None:
    """Has the server started when there is none."""
    path = socket_of(folder, key)
    connection = _connect(path)
    if connection is None:
        broker = _connect(f"{folder}/broker")
        if broker is None:
            return None
        send(broker, (key, environment), [])
        broker.recv(1)  # it listens now
        broker.close()
        connection = _connect(path)
    return connection


def send(connection: socket.socket, value: object, descriptors: list[int]) -> None:
    """Sends a value that marshal knows, with descriptors."""
    data = marshal.dumps(value)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([len(data).to_bytes(8, "little")], rights)
    connection.sendall(data)


def _request(words: list[str], environment: dict[bytes, bytes], descriptors: list[int]) -> dict[str, object]:
    handlers = {number: signal.getsignal(number) for number in range(1, signal.NSIG) if number not in (32, 33)}
    mask = os.umask(0)
    os.umask(mask)
    return {
        "words": words,
        "environment": environment,
        "descriptors": descriptors,
        "ignored": [n for n, h in handlers.items() if h == signal.SIG_IGN and n not in IGNORED_BY_PYTHON],
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "limits": [resource.getrlimit(kind) for kind in range(16)],
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "umask": mask,
    }


def _run(connection: socket.socket, words: list[str], environment: dict[bytes, bytes]) -> int | None:
    """Returns the program's wait status, or None when it was not started."""
    early: list[int] = []
    program = 0

    def forward(number: int, frame: object) -> None:
        if program:
            os.kill(program, number)
        else:
            early.append(number)

    descriptors = _descriptors()
    request = _request(words, environment, descriptors)
    before = {number: signal.signal(number, forward) for number in FORWARDED}
    folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        send(connection, request, [folder, *descriptors])
        answer = connection.recv(4)
    except OSError:
        answer = b""
    os.close(folder)
    if len(answer) < 4:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in early:
            os.kill(os.getpid(), number)
        return None
    program = int.from_bytes(answer, "little")
    for number in early:
        os.kill(program, number)
    for number in (0, 1):  # who waits for the end of a pipe waits for the program, not for us
        if number in descriptors:
            os.close(number)
    status = connection.recv(4)
    return int.from_bytes(status, "little") if len(status) == 4 else 255 << 8


def main(folder: str, kind: str, python: str, expected: object) -> None:
    """Ends the process, or becomes the real Python."""
    words = sys.argv[1:]
    environment = dict(os.environb)
    if not _is_to_be_started(words, environment, expected):
        connection = _connect_to_server(folder, key_of(environment, kind), environment)
        status = _run(connection, words, environment) if connection is not None else None
        if status is not None:
            number = os.WTERMSIG(status)
            if os.WIFSIGNALED(status):
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_DFL)
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
                os.kill(os.getpid(), number)
            os._exit(os.WEXITSTATUS(status))
    os.execv(python, [python, *words])
