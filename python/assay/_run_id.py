# SPDX-License-Identifier: Apache-2.0
"""One run id for all processes of a job, on hosts that share neither a folder nor a clock.

The processes agree through the store that they have met in already: each proposes a random id, and the store keeps the
first one. No collective is called. Two jobs have two stores, and so two ids. docs/formats/native.md
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Callable, Optional

from assay import _manifest

__all__ = ["id_of_job", "id_of_launcher"]

_PATIENCE_SECONDS = 5.0  # what the host waits at most
_KEY = "assay/run_id"


def _agreed(open_store: Callable[[], Any], key: str) -> str:
    """The id that the store keeps under a key. Raises whatever the store does, and TimeoutError."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(open_store().compare_set(key, "", uuid.uuid4().hex))
        except Exception as error:
            answers.append(error)

    # On a thread of its own: a store waits for a server that hangs, and for other users of its connection.
    thread = threading.Thread(target=ask, name="assay-run-id", daemon=True)
    thread.start()
    thread.join(2 * _PATIENCE_SECONDS)
    if not answers:
        raise TimeoutError("the job's store did not answer")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return bytes(answers[0]).decode() if isinstance(answers[0], (bytes, bytearray)) else str(answers[0])


def _agent_store(torch: Any) -> Any:
    """A connection of our own to the store of torchrun's agents, which every worker may use."""
    return torch.distributed.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=_PATIENCE_SECONDS),
    )


def id_of_launcher(environment: Mapping[str, str]) -> Optional[str]:
    """The id that follows from what a launcher tells all processes of one job and no other job; None without one.

    PMIx names the job after its launcher's process, Slurm numbers the steps of a job. Where one step starts several
    programs one after the other they have the same id.
    """
    namespace = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
    if environment.get("SLURM_JOB_ID") and environment.get("SLURM_STEP_ID", "").isdigit():
        # A job that is put into the queue again keeps its number.
        names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
        text = "slurm " + " ".join(environment.get(name, "-") for name in names)
    elif namespace:
        text = f"pmix {namespace}"
    else:
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def id_of_job() -> tuple[Optional[str], str]:
    """Returns the run id of this process's job, and why there is none: (id, "") or (None, reason).

    (None, "") of a job of one process. Never raises, and takes ten seconds at most.
    """
    given = os.environ.get("ASSAY_RUN_ID", "")
    if given:
        valid = re.fullmatch("[0-9a-fA-F]{32}", given) is not None
        return (None, "" if valid else "ASSAY_RUN_ID is not 32 hexadecimal digits")
    if _manifest.world_size() < 2:
        return None, ""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    reason = "there is no process group yet, and the launcher names no job"
    if distributed is not None and distributed.is_available():
        try:
            if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
                # The agents' store outlives restarts of the workers: they go on with the same run.
                job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
                return _agreed(lambda: _agent_store(torch), f"{_KEY}/{job}"), ""
            if distributed.is_initialized():
                return _agreed(distributed.distributed_c10d._get_default_store, _KEY), ""
        except Exception as error:
            text = str(error)
            reason = text.splitlines()[0] if text else type(error).__name__
    job_id = id_of_launcher(os.environ)
    return job_id, "" if job_id is not None else reason
