# SPDX-License-Identifier: Apache-2.0
"""The servers of warm_python.py, and the broker that starts them.

A server imports torch, takes it out of sys.modules, and then forks a process for each request. In there an import goes
the usual way through sys.meta_path, and what the finder of files finds is not executed, but handed over, when it is the
very file that the server had imported: who waits for `import torch` sees it happen.

    python -ISE warm_server.py FOLDER PYTHON LIFE READY    the broker
"""

from __future__ import annotations

import marshal
import os
import select
import shutil
import socket
import subprocess
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import warm_client

# What a server of a kind imports beside NumPy and torch, one after the other.
MORE = {
    "torch": (),
    "transformers": (
        "transformers",
        "transformers.models.auto",
        "transformers.generation.utils",
        "transformers.models.llama.modeling_llama",
    ),
}
MAX_SERVERS = 5  # at the same time: each has 150 MB to itself
_FREE = 600  # descriptors from here on are nobody's


def _receive(connection, limit=260):
    """Returns a value and the descriptors that came with it."""
    head, descriptors, _, _ = socket.recv_fds(connection, 8, limit)
    rest = int.from_bytes(head, "little")
    parts = []
    while rest > 0 and (part := connection.recv(rest)):
        parts.append(part)
        rest -= len(part)
    if len(head) < 8 or rest:
        raise OSError("the request is cut off")
    return marshal.loads(b"".join(parts)), descriptors


def _listen(path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(128)
    return listener


# --- the broker


def _start_server(python, listener, key, environment):
    """Returns the process and the end of a pipe that is to be held open while others may come."""
    life, hold = os.pipe()
    kind, _ = marshal.loads(key)
    here = os.path.dirname(os.path.abspath(__file__))
    code = f"import sys; sys.path.insert(0, {here!r}); import warm_server\n"
    code += f"warm_server.serve({kind!r}, {listener.fileno()}, {life}, {here!r})()"
    own = {n: v for n, v in environment.items() if not n.startswith((b"ASSAY_", b"ATB_", b"LD_PRELOAD", b"PYTHONPATH"))}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([python, "-c", code], env=own, pass_fds=[listener.fileno(), life], cwd="/", **streams)
    os.close(life)
    return process, hold


def broker(folder, python, life):
    """Starts servers until the other end of `life` is closed, however that comes."""
    listener = _listen(f"{folder}/broker")
    servers = {}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(life, 0)
    os.write(int(sys.argv[4]), b"!")
    os.close(int(sys.argv[4]))
    while life not in dict(poll.poll()):
        connection, _ = listener.accept()
        try:
            (key, environment), _ = _receive(connection)
            path = warm_client.socket_of(folder, key)
            process, hold = servers.pop(path, (None, None))
            if process is not None and process.poll() is None:
                servers[path] = process, hold
            else:
                if process is not None:
                    os.close(hold)
                if os.path.exists(path):
                    os.unlink(path)
                with _listen(path) as listening:
                    servers[path] = _start_server(python, listening, key, environment)
                while len(servers) > MAX_SERVERS:
                    oldest = next(iter(servers))
                    os.close(servers.pop(oldest)[1])
                    os.unlink(oldest)
            connection.send(b"!")
        except OSError:
            pass
        connection.close()
    for process, hold in servers.values():
        os.close(hold)
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


# --- a server: imports


def _is_of_python(name):
    """Whether a module is Python's own: these stay in sys.modules."""
    return name.partition(".")[0] in sys.stdlib_module_names or name in ("__main__", "__mp_main__")


class _Imports:
    """Which module imported which while it was executed."""

    def __init__(self):
        self.needs = {}
        self._at_work = []
        self._complete = set()  # what these import later is not of their own import

    def __enter__(self):
        import builtins
        import importlib

        self._import, self._import_module = builtins.__import__, importlib.import_module
        builtins.__import__, importlib.import_module = self._watched_import, self._watched_import_module
        return self

    def __exit__(self, *_):
        import builtins
        import importlib

        builtins.__import__, importlib.import_module = self._import, self._import_module

    def _note(self, importer, names):
        if importer in self._complete:
            return
        known = self.needs.setdefault(importer, {})
        known.update((name, None) for name in names if name in sys.modules)

    def complete(self, package, new):
        """Of the new modules, those that nobody was seen to import are the package's: some are made by hand."""
        reached, ways = set(), [package]
        while ways:
            name = ways.pop()
            if name not in reached:
                reached.add(name)
                ways += () if _is_of_python(name) else self.needs.get(name, ())
        self.needs.setdefault(package, {}).update(dict.fromkeys(sorted(new - reached)))
        self._complete |= new

    def _watched_import(self, name, globals=None, locals=None, fromlist=(), level=0):
        importer = (globals or {}).get("__name__") or (self._at_work[-1] if self._at_work else "")
        full = name
        if level:
            package = (globals or {}).get("__package__") or ""
            base = package.rsplit(".", level - 1)[0] if level > 1 else package
            full = f"{base}.{name}" if name else base
        self._at_work.append(full)
        try:
            return self._import(name, globals, locals, fromlist, level)
        finally:
            self._at_work.pop()
            self._note(importer, [full, *(f"{full}.{item}" for item in fromlist or ())])

    def _watched_import_module(self, name, package=None):
        import importlib.util

        importer = sys._getframe(1).f_globals.get("__name__", "")
        found = self._import_module(name, package)
        self._note(importer, [importlib.util.resolve_name(name, package)])
        return found


class _Stash:
    """Modules that were executed, to be handed over when they are imported."""

    def __init__(self, modules, needs, actions, attributes):
        import importlib.machinery

        self.modules = modules
        self._needs = needs
        self._attributes = attributes  # modules that their packages have as attributes once they are imported
        self._actions = actions  # package -> what else its import does
        self._find = importlib.machinery.PathFinder.find_spec
        self._own_finders = list(sys.meta_path)
        stash = self

        def find_spec(cls, name, path=None, target=None):
            spec = stash._find(name, path, target)
            if spec is not None and target is None:
                stash._lend(spec)
            return spec

        importlib.machinery.PathFinder.find_spec = classmethod(find_spec)

    def _lend(self, spec):
        """Makes the loader of a spec hand over a module instead of executing its file."""
        module = self.modules.get(spec.name)
        if module is None or spec.origin != module.__spec__.origin:
            return
        loader = spec.loader

        def create_module(_):
            return module

        def exec_module(_):
            for name in ("create_module", "exec_module"):
                loader.__dict__.pop(name, None)
            self.modules.pop(spec.name, None)
            self._bring_needs(spec.name)

        loader.create_module, loader.exec_module = create_module, exec_module

    def _bring_needs(self, name):
        for need in self._needs.get(name, ()):
            if need not in sys.modules:
                self._bring(need)
        for action in self._actions.pop(name, ()):
            action()

    def _bring(self, name):
        import importlib

        if name not in self.modules:
            return
        parent = name.rpartition(".")[0]
        if parent and parent not in sys.modules:
            self._bring(parent)
            if name in sys.modules:
                return
        path = getattr(sys.modules.get(parent), "__path__", None)
        others = [f for f in sys.meta_path if f not in self._own_finders and hasattr(f, "find_spec")]
        is_found = not parent and self._find(name) is not None  # torch has made one in a temporary folder
        if is_found or any(finder.find_spec(name, path) is not None for finder in others):
            importlib.import_module(name)
        else:
            sys.modules[name] = module = self.modules.pop(name)
            self._bring_needs(name)
            if name in self._attributes:
                setattr(sys.modules[parent], name.rpartition(".")[2], module)


class _Effects:
    """What an import does beside filling sys.modules, taken back so that it can be done again."""

    def __init__(self):
        import warnings

        self._warnings = warnings
        self._filters, self._finders = list(warnings.filters), list(sys.meta_path)
        self._environment = dict(os.environ)

    def take_back(self):
        filters, finders = self._warnings.filters, sys.meta_path
        self._new_filters = [entry for entry in filters if entry not in self._filters]
        self._new_finders = [finder for finder in finders if finder not in self._finders]
        self._new_variables = {n: v for n, v in os.environ.items() if self._environment.get(n) != v}
        filters[:], finders[:] = self._filters, self._finders
        self._warnings._filters_mutated()
        for name in self._new_variables:
            del os.environ[name]
        os.environ.update(self._environment)

    def have(self):
        self._warnings.filters[0:0] = self._new_filters
        self._warnings._filters_mutated()
        sys.meta_path += self._new_finders
        os.environ.update(self._new_variables)


def _import_all(kind):
    """Imports what programs of a kind import, and takes it away again."""
    import gc

    before, actions, stage_of = set(sys.modules), {}, {}
    with _Imports() as imports:
        for stage, package in enumerate(("numpy", "torch", *MORE[kind])):
            effects, known = _Effects(), set(sys.modules)
            __import__(package)
            effects.take_back()
            actions[package] = [effects.have]
            new = set(sys.modules) - known
            stage_of.update(dict.fromkeys(new, stage))
            imports.complete(package, new)
    # The start of this generator is random.
    actions["torch"].append(lambda: sys.modules["torch"].default_generator.seed())
    modules, needs = {}, imports.needs
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if name not in before and not _is_of_python(name) and (origin or "." in name):
            modules[name] = sys.modules.pop(name)
    attributes = set()
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent in modules and stage_of[parent] < stage_of[name] and vars(modules[parent]).get(last) is module:
            delattr(modules[parent], last)
            attributes.add(name)
    gc.collect()
    gc.freeze()
    return _Stash(modules, needs, actions, attributes)


# --- a server: requests


def serve(kind, listening, life, here):
    """Returns in each process of a program with what is to be called there."""
    import sysconfig  # noqa: F401  (read by site for user folders)

    sys.path.remove(here)
    paths = sys.path[0 if sys.flags.safe_path else 1 :]
    stash = _import_all(kind)
    listener = socket.socket(fileno=listening)
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    poll.register(life, 0)
    programs = {}  # pidfd or connection -> (pid, pidfd, connection)
    others_come = True
    while others_come or programs:
        for ready, _ in poll.poll():
            if ready == life:
                others_come = False
                poll.unregister(life)
                poll.unregister(listening)
                listener.close()
            elif ready == listening and others_come:
                connection, _ = listener.accept()
                try:
                    request, descriptors = _receive(connection)
                except (OSError, ValueError, EOFError):
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    for other in [listener, connection, *(c for _, _, c in programs.values())]:
                        other.detach()  # closed with all descriptors
                    return _become(request, descriptors, stash, paths)
                for number in descriptors:
                    os.close(number)
                handle = os.pidfd_open(pid)
                connection.send(pid.to_bytes(4, "little"))
                for number in (handle, connection.fileno()):
                    programs[number] = pid, handle, connection
                    poll.register(number, select.POLLIN)
            elif ready in programs:
                pid, handle, connection = programs[ready]
                if ready != handle:  # the client has ended
                    poll.unregister(ready)
                    os.kill(pid, 9)
                    continue
                _, status = os.waitpid(pid, 0)
                for number in (handle, connection.fileno()):
                    del programs[number]
                    try:
                        poll.unregister(number)
                    except KeyError:
                        pass
                try:
                    connection.send(status.to_bytes(4, "little"))
                except OSError:
                    pass
                connection.close()
                os.close(handle)
    os._exit(0)


def _take_descriptors(wanted, received):
    """Puts the received descriptors at their numbers, the first one aside, and closes all others."""
    import fcntl

    aside = [fcntl.fcntl(number, fcntl.F_DUPFD, _FREE) for number in received]
    os.closerange(0, _FREE)
    for number, target in zip(aside[1:], wanted):
        os.dup2(number, target)
        os.close(number)
    os.fchdir(aside[0])
    os.close(aside[0])


def _take_signals(ignored, blocked):
    import signal

    for number in set(range(1, signal.NSIG)) - {32, 33, *warm_client.IGNORED_BY_PYTHON}:
        if number in ignored:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _take_limits(request):
    import resource

    for kind, limits in enumerate(request["limits"]):
        if resource.getrlimit(kind) != limits:
            resource.setrlimit(kind, limits)
    difference = request["nice"] - os.getpriority(os.PRIO_PROCESS, 0)
    if difference:
        os.nice(difference)
    os.umask(request["umask"])


def _take_streams():
    """The objects stay: loggers hold them. As those of the server they cannot be sought in."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    if sys.stdout is not None and not sys.stdout.write_through:
        sys.stdout.reconfigure(line_buffering=os.isatty(1))


def _take_search_path(environment, paths):
    """sys.path as of an interpreter that starts with this environment, and the start-up files on it."""
    import importlib
    import site

    asked = environment.get(b"PYTHONPATH")
    asked = [os.path.abspath(os.fsdecode(entry)) for entry in asked.split(b":")] if asked else []
    sys.path[:] = dict.fromkeys([*asked, *paths])
    importlib.invalidate_caches()
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()
    if site.ENABLE_USER_SITE:
        sys.modules.pop("usercustomize", None)
        site.execusercustomize()


def _become(request, received, stash, paths):
    """Turns the forked process into one that was just started; returns what runs the program."""
    import tempfile
    import types

    os.setpgid(0, 0)
    _take_descriptors(request["descriptors"], received)
    _take_signals(request["ignored"], request["blocked"])
    _take_limits(request)
    os.environb.clear()
    os.environb.update(request["environment"])
    _take_streams()
    tempfile.tempdir = None
    if "numpy.random" in stash.modules:
        stash.modules["numpy.random"].seed()
    words = request["words"]
    sys.orig_argv[:] = [sys.executable, *words]
    sys.argv[:] = words[:1] + words[2:] if words[0] in ("-c", "-m") else words
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
    main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
    for name in ("warm_server", "warm_client"):
        sys.modules.pop(name, None)
    _take_search_path(request["environment"], paths)
    return lambda: _run(words, main)


def _program_of(words, main):
    """Returns the code object of a program and the first entry of its sys.path."""
    import importlib.machinery

    if words[0] == "-c":
        main.__loader__ = importlib.machinery.BuiltinImporter
        return "", lambda: compile(words[1] + "\n", "<string>", "exec", dont_inherit=True)
    path = words[0] if os.path.isabs(words[0]) else f"{os.getcwd()}/{words[0]}"
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__file__, main.__cached__ = path, None

    def compiled():
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    return os.path.dirname(os.path.realpath(path)), compiled


def _run(words, main):
    """Runs the program; what it raises is told as the interpreter tells it."""
    if words[0] == "-m":
        import runpy

        first = os.getcwd()
    else:
        first, compiled = _program_of(words, main)
    if not sys.flags.safe_path:
        sys.path.insert(0, first)
    try:
        if words[0] == "-m":
            runpy._run_module_as_main(words[1])
        else:
            exec(compiled(), main.__dict__)
        error = None
    except BaseException as raised:
        error = raised
    _end(error, main)


def _end(error, main):
    """Ends the process as the interpreter would with what the program raised.

    The modules but for __main__ are not taken apart: that would copy most of the server's memory.
    """
    import atexit
    import ctypes
    import gc
    import signal
    import threading

    status = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code
        status = code & 0xFF if isinstance(code, int) else 0 if code is None else 1
        if status == 1 and not isinstance(code, int):
            print(code, file=sys.stderr)
    elif error is not None:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error, trace)
    is_interrupted = isinstance(error, KeyboardInterrupt)
    del error
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:
        sys.exit(status)  # the interpreter knows what to say
    main.__dict__.clear()
    gc.collect()
    if is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    ctypes.CDLL(None).fflush(None)
    os._exit(status)


if __name__ == "__main__":
    broker(sys.argv[1], sys.argv[2], int(sys.argv[3]))
