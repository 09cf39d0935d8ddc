# SPDX-License-Identifier: Apache-2.0
"""Brings files that lie elsewhere (s3://, gs://, http://, whatever fsspec knows) to this machine, part by part.

The native command holds the text of this file and starts it with `python -c`; it must run on any Python from 3.9 on and
need nothing of assay. src/remote/transfer.cpp is the other side.

    argv       file descriptor of the socket
    socket     one JSON object a line; answers bear the id of their request, and requests may overlap

    {"id": 1, "tree": URL}    entries of all that is below it, or of the one file that it is
    {"id": 1, "list": URL}    entries of a folder, one level
    {"id": 1, "facts": URL}   one entry
    {"id": 1, "fetch": [{"url": URL, "size": 10, "version": "...", "file": PATH, "ranges": [[offset, size], ...]}, ...]}
                              writes the ranges into local files at their own offsets

    {"id": 1, "entries": [[name, "file" | "folder" | problem, size, version, modified_ns], ...]}   any number of them
    {"id": 1, "moved": BYTES}      what has arrived since the last such line; also says that work goes on
    {"id": 1, "done": true}
    {"id": 1, "error": "a sentence", "kind": "NotFound" | "Permission" | "NoSpace" | "Unsupported" | "Io", "url": URL}

Names are relative to the URL; "" is the URL itself. Credentials, end points and proxies are those of fsspec and the
libraries below it.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import errno
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

MAX_SENTENCE = 500
ENTRIES_A_LINE = 2000
PART_BYTES = 8 << 20
REQUESTS_AT_ONCE = 16
ATTEMPTS = 4
PATIENCE_SECONDS = 20  # after these no further attempt is begun: libraries below have a patience of their own
FIRST_DELAY_SECONDS = 0.2
NODES = "nodes://cluster"  # beginning of the URLs of src/remote/node_files.cpp
TIMES = ("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "created")

Send = Callable[[dict[str, Any]], None]


class Refusal(Exception):
    """What the user is told instead of a result."""

    def __init__(self, kind: str, sentence: str):
        super().__init__(sentence)
        self.kind = kind


def one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:MAX_SENTENCE]


# ---- fsspec ----

_INSTALL = "pip install 'assay-llm[remote]' brings it"
_systems: dict[str, Any] = {}  # by scheme and the first component behind it
_lock = threading.Lock()


def open_file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path as it knows it."""
    if url.startswith(NODES):
        with _lock:
            if NODES not in _systems:
                _systems[NODES] = NodeFiles()
        return _systems[NODES], url[len(NODES) :]
    try:
        import fsspec
    except ImportError as problem:
        raise Refusal(
            "Unsupported", f"paths with :// need fsspec, which the Python at {sys.executable} has not; {_INSTALL}"
        ) from problem
    # fsspec itself keeps one instance a thread, each with connections of its own.
    home = url[: (url + "/").index("/", url.index("://") + 3)]
    with _lock:
        system = _systems.get(home)
        if system is None:
            system = _systems[home] = make_file_system(fsspec, url)
    return system, system._strip_protocol(url)


def make_file_system(fsspec: Any, url: str) -> Any:
    try:
        try:
            return fsspec.core.url_to_fs(url, use_listings_cache=False)[0]
        except TypeError:  # not every file system keeps lists
            return fsspec.core.url_to_fs(url)[0]
    except ImportError as problem:
        sentence = f"{one_line(str(problem))} in the Python at {sys.executable}; {_INSTALL}"
        raise Refusal("Unsupported", sentence) from problem
    except ValueError as problem:
        raise Refusal("Unsupported", f"fsspec cannot open it: {one_line(str(problem))}") from problem


class NodeFiles:
    """Files of other hosts of a cluster: ASSAY_NODE_FILES names a file which says the socket of who reads them.

    A question is a line of JSON: {"info" | "list" | "tree": path} or {"read": path, "start": n, "end": n}. So is the
    answer, with "size" bytes behind it: {"entries": [[name, info], ...]}, {"size": n}, or {"error": sentence, "kind":
    one of a Refusal}.
    """

    def __init__(self) -> None:
        with open(os.environ["ASSAY_NODE_FILES"], encoding="utf-8") as file:
            self._socket = json.load(file)["socket"]
        self._of_thread = threading.local()

    def _ask(self, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        stream = getattr(self._of_thread, "stream", None)
        try:
            if stream is None:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(self._socket)
                stream = self._of_thread.stream = connection.makefile("rwb")
            stream.write(json.dumps(question).encode() + b"\n")
            stream.flush()
            line = stream.readline()
            answer = json.loads(line) if line else None
            data = stream.read(answer["size"]) if answer and "size" in answer else b""
        except BaseException:
            self._of_thread.stream = None
            raise
        if answer is None or len(data) != answer.get("size", 0):
            self._of_thread.stream = None
            raise OSError("the driver of the cluster has gone")
        if "error" in answer:
            raise Refusal(answer["kind"], answer["error"])
        return answer, data

    def info(self, path: str) -> dict[str, Any]:
        return dict(self._ask({"info": path})[0]["entries"][0][1])

    def ls(self, path: str, detail: bool = True) -> list[dict[str, Any]]:
        entries = self._ask({"list": path})[0]["entries"]
        return [{**info, "name": f"{path.rstrip('/')}/{name}"} for name, info in entries]

    def find(self, path: str, detail: bool = True, withdirs: bool = False) -> dict[str, dict[str, Any]]:
        entries = self._ask({"tree": path})[0]["entries"]
        return {f"{path.rstrip('/')}/{name}": info for name, info in entries}

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return self._ask({"read": path, "start": start, "end": end})[1]


_FATAL = {
    "NoCredentialsError": "Permission",
    "PartialCredentialsError": "Permission",
    "ProfileNotFound": "Permission",
    "ParamValidationError": "Unsupported",
    "InvalidURL": "Unsupported",
}


def is_connection_error(problem: BaseException) -> bool:
    return any(kind.__name__ in ("ClientConnectionError", "TimeoutError") for kind in type(problem).__mro__)


def refusal_of(problem: BaseException) -> Optional[Refusal]:
    """What trying again would not change; None for everything else."""
    if isinstance(problem, Refusal):
        return problem
    text = one_line(str(problem)) or type(problem).__name__
    if isinstance(problem, FileNotFoundError):
        # A web server that cannot be reached is no missing file.
        cause = problem.__cause__
        if cause is not None and (getattr(cause, "status", 404) != 404 or is_connection_error(cause)):
            return refusal_of(cause)
        return Refusal("NotFound", "there is no such file or folder")
    if isinstance(problem, PermissionError):
        return Refusal("Permission", f"access is denied: {text}")
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal("NoSpace", "the disk of the cache is full")
    for kind in type(problem).__mro__:
        if kind.__name__ in _FATAL:
            return Refusal(_FATAL[kind.__name__], text)
    if isinstance(problem, (NotImplementedError, IsADirectoryError, NotADirectoryError, TypeError, ValueError)):
        return Refusal("Unsupported", f"{type(problem).__name__}: {text}")
    status = getattr(problem, "status", None)  # of aiohttp
    if status in (401, 403):
        return Refusal("Permission", f"access is denied: {text}")
    return None


def with_patience(work: Callable[[], Any], alive: Callable[[], None]) -> Any:
    """Does `work` again when it fails for a reason that may go away, a few times and later each time."""
    delay = FIRST_DELAY_SECONDS
    began = time.monotonic()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work()
        except Exception as problem:
            refusal = refusal_of(problem)
            if refusal is not None:
                raise refusal from problem
            if attempt == ATTEMPTS or time.monotonic() - began > PATIENCE_SECONDS:
                reason = problem.__cause__ if isinstance(problem, FileNotFoundError) else problem
                text = one_line(str(reason)) or "no reason given"
                raise Refusal("Io", f"{type(reason).__name__}: {text} ({attempt} attempts)") from problem
        alive()
        time.sleep(delay * (1 + random.random() / 2))
        delay *= 2


# ---- what lies where ----


def nanoseconds(value: Any) -> int:
    if isinstance(value, datetime.datetime):
        return int(value.replace(tzinfo=value.tzinfo or datetime.timezone.utc).timestamp() * 1e9)
    if isinstance(value, (int, float)):
        return int(value * 1e9)
    if isinstance(value, str):
        try:
            return nanoseconds(datetime.datetime.fromisoformat(value.replace("Z", "+00:00")))
        except ValueError:
            return 0
    return 0


def version_of(info: dict[str, Any]) -> str:
    """Another text when the content is another, as far as the file system tells."""
    for key in ("ETag", "etag", "generation", "md5Hash", "content_settings"):
        if info.get(key):
            return f"{key} {info[key]}"
    # Lists and single answers may write the same time in different ways.
    times = [str(nanoseconds(info[key]) or info[key]) for key in TIMES if info.get(key)]
    return " ".join([*times[:1], str(info.get("ino", ""))]).strip()


def entry_of(name: str, info: dict[str, Any]) -> list[Any]:
    """A line of the protocol about one file or folder."""
    if info.get("type") == "directory":
        return [name, "folder", 0, "", 0]
    modified = info.get("modified_ns", 0)
    for key in TIMES:
        if info.get(key):
            modified = nanoseconds(info[key])
            break
    try:
        name.encode()
    except UnicodeEncodeError:
        name = name.encode(errors="surrogateescape").decode(errors="replace")
        return [name, "has a name that is not UTF-8", 0, "", 0]
    if info.get("islink") and info.get("type") != "file":
        return [name, "is a link, and those are not followed here", 0, "", 0]
    if info.get("type") not in (None, "file"):
        return [name, "is not a regular file", 0, "", 0]
    return [name, "file", info.get("size"), version_of(info), modified]


class Place:
    """A URL as its file system knows it."""

    def __init__(self, url: str):
        self.url = url
        self.system, self.path = open_file_system(url)
        self.base = self.path.rstrip("/")
        self.is_web = url.startswith(("http://", "https://"))  # folders are pages with links

    def name_of(self, path: str) -> str:
        """A path of the file system relative to this one."""
        path = str(path)
        rest = path[len(self.base) :] if path.startswith(self.base) else path
        return rest[1:] if rest.startswith("/") else rest

    def info(self) -> dict[str, Any]:
        info = dict(self.system.info(self.path))
        if self.is_web and info.get("mimetype") == "text/html" and not self.path.endswith((".html", ".htm")):
            return {"name": self.path, "type": "directory"}
        if info.get("type") != "directory" and info.get("size") is None:
            raise Refusal("Unsupported", "the server does not say how long the file is")
        return info

    def children(self) -> dict[str, dict[str, Any]]:
        found = self.system.ls(self.path, detail=True)
        named = {self.name_of(str(info["name"])).rstrip("/"): info for info in found}
        # An object store may list the folder's own marker; a file lists itself.
        named.pop("", None)
        return named

    def tree(self) -> dict[str, dict[str, Any]]:
        """All that is below, by name; {"": its own} for a file."""
        # Looking for links in a file of a web server would fetch all of it.
        if self.is_web and (info := self.info()).get("type") != "directory":
            return {"": info}
        # Only there are folders empty; elsewhere one would hide an object of the same name.
        is_local = self.url.startswith(("file://", "local://"))
        found = self.system.find(self.path, detail=True, withdirs=is_local)
        if not found and (info := self.info()).get("type") != "directory":
            return {"": info}
        return {self.name_of(path): info for path, info in found.items()}


def with_sizes(place: Place, entries: list[list[Any]], pool: concurrent.futures.Executor) -> Iterator[list[Any]]:
    """A web server's list of a folder does not tell sizes; its answers about single files do."""

    def complete(entry: list[Any]) -> list[Any]:
        if entry[1] != "file" or isinstance(entry[2], int):
            return entry
        name = entry[0]
        try:
            return entry_of(name, with_patience(Place(f"{place.url.rstrip('/')}/{name}").info, lambda: None))
        except Refusal as refusal:
            return [name, str(refusal), 0, "", 0]

    if all(entry[1] != "file" or isinstance(entry[2], int) for entry in entries):
        return iter(entries)
    return pool.map(complete, entries)


# ---- ranges ----


class Transfer:
    """One request for ranges of files."""

    def __init__(self, files: list[dict[str, Any]], moved: Callable[[int], None]):
        self.files = files
        self.moved = moved
        self.failed = threading.Event()

    def run(self, pool: concurrent.futures.Executor) -> None:
        parts: list[concurrent.futures.Future[None]] = []
        descriptors: list[int] = []
        places: list[Place] = []
        try:
            for wanted in self.files:
                try:
                    place = Place(wanted["url"])
                    places.append(place)
                    descriptors.append(os.open(wanted["file"], os.O_WRONLY | os.O_CLOEXEC))
                except FileNotFoundError as problem:
                    raise Located(wanted["url"], Refusal("Io", "another process emptied the cache")) from problem
                except (Refusal, OSError) as problem:
                    raise located(wanted["url"], problem) from problem
                for offset, size in wanted["ranges"]:
                    for start in range(offset, offset + size, PART_BYTES):
                        end = min(start + PART_BYTES, offset + size)
                        parts.append(pool.submit(self.fetch, place, wanted, descriptors[-1], start, end))
            failed = [part.exception() for part in parts]
            checks = [pool.submit(self.check_version, place, wanted) for place, wanted in zip(places, self.files)]
            changed = [check.exception() for check in checks]
            # That a file was replaced explains whatever else went wrong with it.
            for one in (*changed, *failed):
                if one is not None:
                    raise one
        finally:
            self.failed.set()
            concurrent.futures.wait(parts)
            for descriptor in descriptors:
                os.close(descriptor)

    def fetch(self, place: Place, wanted: dict[str, Any], descriptor: int, start: int, end: int) -> None:
        def read() -> bytes:
            data = bytes(place.system.cat_file(place.path, start=start, end=end))
            if len(data) > end - start:
                raise Refusal("Unsupported", "the server sends whole files where parts are asked for")
            if len(data) != end - start:
                raise OSError(f"the file ends at byte {start + len(data)} of {wanted['size']}")
            return data

        if self.failed.is_set():
            return
        try:
            data = memoryview(with_patience(read, lambda: self.moved(0)))
            offset = start
            while data:
                written = os.pwrite(descriptor, data, offset)
                data = data[written:]
                offset += written
        except (Refusal, OSError) as problem:
            self.failed.set()
            raise located(place.url, problem) from problem
        self.moved(end - start)

    def check_version(self, place: Place, wanted: dict[str, Any]) -> None:
        """What was read belongs to what was listed."""
        try:
            invalidate = getattr(place.system, "invalidate_cache", None)
            if invalidate is not None:
                invalidate()
            info = with_patience(place.info, lambda: self.moved(0))
        except Refusal as problem:
            raise Located(place.url, problem) from problem
        if info.get("size") != wanted["size"] or version_of(info) != wanted["version"]:
            raise Located(place.url, Refusal("Io", "the file was changed while it was read"))


class Located(Exception):
    """A refusal and the file that it is about."""

    def __init__(self, url: str, refusal: Refusal):
        super().__init__(str(refusal))
        self.url = url
        self.refusal = refusal


def located(url: str, problem: BaseException) -> Located:
    refusal = refusal_of(problem) or Refusal("Io", f"{type(problem).__name__}: {one_line(str(problem))}")
    return Located(url, refusal)


# ---- requests ----


class Service:
    """Answers requests, several at a time."""

    def __init__(self) -> None:
        self.pool = concurrent.futures.ThreadPoolExecutor(REQUESTS_AT_ONCE)

    def answer(self, request: dict[str, Any], send: Send) -> None:
        """Sends all answers to one request."""
        number = request["id"]
        url = next((request[key] for key in ("tree", "list", "facts") if key in request), "")
        try:
            if "fetch" in request:
                Transfer(request["fetch"], lambda count: send({"id": number, "moved": count})).run(self.pool)
            else:
                place = Place(url)
                entries = with_patience(lambda: self.entries(place, request), lambda: send({"id": number, "moved": 0}))
                for i in range(0, len(entries), ENTRIES_A_LINE):
                    send({"id": number, "entries": entries[i : i + ENTRIES_A_LINE]})
            send({"id": number, "done": True})
        except Located as problem:
            refusal = problem.refusal
            send({"id": number, "error": one_line(str(refusal)), "kind": refusal.kind, "url": problem.url})
        except Exception as problem:
            refusal = located(url, problem).refusal
            send({"id": number, "error": one_line(str(refusal)), "kind": refusal.kind, "url": url})

    def entries(self, place: Place, request: dict[str, Any]) -> list[list[Any]]:
        if "facts" in request:
            return [entry_of("", place.info())]
        named = place.tree() if "tree" in request else place.children()
        entries = [entry_of(name, info) for name, info in named.items()]
        return list(with_sizes(place, entries, self.pool))


_service: Optional[Service] = None


def answer_lines(line: str) -> list[str]:
    """All answers to one request, for a process that answers its own."""
    global _service
    with _lock:
        _service = _service or Service()
    answers: list[dict[str, Any]] = []
    _service.answer(json.loads(line), answers.append)
    return [json.dumps(answer) for answer in answers]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides what an interrupt means
    # What libraries print is for people: standard output belongs to the command's report.
    os.dup2(2, 1)
    for entry in ("", os.getcwd()):
        if entry in sys.path[:1]:
            del sys.path[0]
    service = Service()
    lock = threading.Lock()
    connection = socket.socket(fileno=int(sys.argv[1]))

    def send(answer: dict[str, Any]) -> None:
        with lock:
            try:
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                os._exit(0)  # nobody listens any more

    for line in connection.makefile("r", encoding="utf-8"):
        threading.Thread(target=service.answer, args=(json.loads(line), send), daemon=True).start()
    # Transfers that nobody waits for end here and now.
    os._exit(0)


if __name__ == "__main__":
    main()
