# SPDX-License-Identifier: Apache-2.0
"""Several ranks of one job, forked from the warm server; torchrun itself is what other tests are about."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile

import warm_python


def run(count: int, *words: object, timeout: int = 300) -> str:
    """Runs a Python program as so many ranks of one machine, one as no rank; returns what they print."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    command = [warm_python.python("transformers"), *map(str, words)]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        ranks = []
        for rank in range(count):
            own = {**job, "RANK": rank, "LOCAL_RANK": rank} if count > 1 else {}
            environment = {**os.environ, **{name: str(value) for name, value in own.items()}, "OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen(command, env=environment, stdout=said, stderr=complained))
        try:
            statuses = [process.wait(timeout) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        for file in (said, complained):
            file.seek(0)
        assert statuses == [0] * count, (statuses, complained.read()[-3000:])
        return said.read()
