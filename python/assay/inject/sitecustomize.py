# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
"""Start-up file of every Python that `assay dump` starts: waits for torch, then hands over to assay.inject.outermost.

Its folder stands first in PYTHONPATH. It must run on any Python from 3.8 on and in processes that are none of our
business, so it imports nothing that is not loaded yet and leaves behind one object in sys.meta_path, until torch is
imported. docs/design/inject.md
"""

import os
import sys


class _ImportWatch:
    """A finder that finds nothing itself: it lends a module's loader an exec_module that tells when it is done."""

    def __init__(self, module, action):
        self._module = module
        self._action = action

    def find_spec(self, name, path=None, target=None):
        if name != self._module:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            del loader.exec_module  # the class's own is behind it
            execute(module)  # when it raises, the watch goes on: the import may be tried again
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._action()

        try:
            # On the instance: the loader stays of its class, and who only asks for the spec sees no difference.
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            pass


def _activate():
    try:
        from assay.inject import outermost

        outermost.activate(_ImportWatch)
    except Exception as error:  # nothing of ours may reach the script
        if isinstance(error, ImportError):
            text = "install the wheel of assay into this Python (" + sys.executable + "): " + str(error)
        else:
            text = "the capture could not start: " + type(error).__name__ + ": " + str(error)
        try:
            sys.stderr.write("assay: " + text + "; nothing is captured in this process\n")
        except Exception:
            pass


def _is_our_folder(entry, folder):
    return isinstance(entry, str) and os.path.realpath(entry) == folder


def _run_next_sitecustomize():
    """Imports the sitecustomize that would have run without us; its exceptions are for site.py, as ever."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        # There is none. The import of this file goes on and looks for itself under its name.
        if ours is not None:
            sys.modules["sitecustomize"] = ours


def _start():
    folder = os.path.dirname(os.path.realpath(__file__))
    # Child processes find us through PYTHONPATH; in here nothing else is to be imported from this folder.
    sys.path[:] = [entry for entry in sys.path if not _is_our_folder(entry, folder)]
    if os.environ.get("ASSAY_TORCH_DUMP"):
        if "torch" in sys.modules:
            _activate()
        else:
            sys.meta_path.insert(0, _ImportWatch("torch", _activate))
    _run_next_sitecustomize()


if __name__ == "sitecustomize":
    _start()
