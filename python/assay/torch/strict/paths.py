# SPDX-License-Identifier: Apache-2.0
"""Where a dump goes: legal output paths and the time stamp that all ranks of one launch share."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import stat
import time
from typing import Optional

from assay.torch.strict.log import logger

_MAX_PATH = 4096
_MAX_NAME = 255
_LEGAL_PATH = re.compile(r"[A-Za-z0-9_\-./]+")
# Two ranks that see each other's stamp file later than this belong to different launches.
_LAUNCH_WINDOW_S = 600.0

_own_stamp: Optional[str] = None


def check_output_path(path: str) -> str:
    """Returns `path` when a dump may be written there.

    Raises:
        argparse.ArgumentTypeError: too long, an illegal character, a symbolic link (unless the environment variable
            RAW_INPUT_PATH names it), another user's folder, or not writable.
    """
    illegal = f"output path:{path} is illegal. Please check it."
    if len(path) > _MAX_PATH or any(len(part) > _MAX_NAME for part in path.split("/")):
        raise argparse.ArgumentTypeError(illegal)
    if not _LEGAL_PATH.fullmatch(path):
        raise argparse.ArgumentTypeError(illegal)
    if not os.path.lexists(path):
        return path
    if os.path.islink(path.rstrip("/")):
        allowed = [os.path.abspath(entry) for entry in os.environ.get("RAW_INPUT_PATH", "").split("|") if entry]
        if os.path.abspath(path) not in allowed:
            raise argparse.ArgumentTypeError(illegal)
    cannot = f"output path:{path} can not be written. Please check it."
    try:
        owner = os.stat(path).st_uid
    except OSError as error:
        raise argparse.ArgumentTypeError(cannot) from error
    if owner != os.geteuid():
        if os.geteuid() != 0:
            raise argparse.ArgumentTypeError(cannot)
        logger.warning("output path:%s is not owned by the current user.", path)
    if not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(cannot)
    return path


def warn_if_writable_by_others(path: str) -> None:
    """Logs a warning for the first parent that any user may write to (a sticky folder such as /tmp is fine)."""
    folder = os.path.abspath(path)
    while True:
        try:
            mode = os.stat(folder).st_mode
        except OSError:
            return
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            logger.warning("%s is writable by others: the dump below it can be replaced.", folder)
            return
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def dump_stamp(dump_path: str) -> str:
    """Returns the stamp of this launch, ``YYYYMMDD_HHMMSS`` in UTC, and exports it as ``ATB_TIMESTAMP``.

    Taken from ATB_TIMESTAMP or MSIT_DUMP_TIMESTAMP when set. With LOCAL_WORLD_SIZE of 2 and more, the first process
    of the launch leaves it in a small file in `dump_path` and the others read it there: no collective, so ranks that
    never register cannot make the others wait, and no process group is touched.
    """
    global _own_stamp
    stamp = os.environ.get("ATB_TIMESTAMP") or os.environ.get("MSIT_DUMP_TIMESTAMP")
    if not stamp:
        stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime())
        try:
            ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        except ValueError:
            ranks = 1
        if ranks >= 2:
            stamp = _agree_on(stamp, dump_path)
        _own_stamp = stamp
    os.environ["ATB_TIMESTAMP"] = stamp
    return stamp


def forget_stamp() -> None:
    """Takes back an ATB_TIMESTAMP of ours, so that the next configuration gets a new folder."""
    global _own_stamp
    if _own_stamp is not None and os.environ.get("ATB_TIMESTAMP") == _own_stamp:
        del os.environ["ATB_TIMESTAMP"]
    _own_stamp = None


def _launch_key() -> str:
    """What the ranks of one launch have in common and other launches do not."""
    local, world = os.environ.get("LOCAL_WORLD_SIZE", "1"), os.environ.get("WORLD_SIZE", "1")
    rendezvous = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")]
    if local != world and any(rendezvous):
        return "|".join(rendezvous)
    # One node: the launcher is everybody's parent; its start time tells it from an earlier process of that number.
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/stat", encoding="ascii", errors="replace") as file:
            started = file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""
    return "|".join([*rendezvous, str(parent), started])


def _agree_on(proposal: str, dump_path: str) -> str:
    os.makedirs(dump_path, exist_ok=True)
    key = hashlib.sha256(_launch_key().encode()).hexdigest()[:16]
    path = os.path.join(dump_path, f".msit_dump_stamp_{key}")
    mine = f"{path}.{os.getpid()}"
    with open(mine, "w", encoding="ascii") as file:
        file.write(proposal)
    try:
        for _ in range(2):
            try:
                os.link(mine, path)  # fails when another rank was first; unlike O_EXCL never shows an empty file
                return proposal
            except FileExistsError:
                if time.time() - os.stat(path).st_mtime < _LAUNCH_WINDOW_S:
                    with open(path, encoding="ascii") as file:
                        return file.read().strip()
                os.unlink(path)
        return proposal
    finally:
        os.unlink(mine)
