# SPDX-License-Identifier: Apache-2.0
"""seed_all: fixed random numbers and deterministic kernels."""

from __future__ import annotations

import argparse
import os
import random

from assay.torch.strict.log import logger

_ENVIRONMENT = {
    "LCCL_DETERMINISTIC": "1",
    "HCCL_DETERMINISTIC": "true",
    "ATB_MATMUL_SHUFFLE_K_ENABLE": "0",
    "ATB_LLM_LCOC_ENABLE": "0",
}


def seed_all(seed: int = 2024) -> None:
    """Seeds every random generator in reach and switches deterministic kernels on, for the rest of the process.

    PYTHONHASHSEED is set for child processes; the running interpreter keeps its own. CUBLAS_WORKSPACE_CONFIG is set
    to ":4096:8" unless the user chose a value: without one, deterministic cuBLAS calls raise.

    Raises:
        argparse.ArgumentTypeError: `seed` is not an int.
        ValueError: NumPy is installed and `seed` is outside [0, 2**32).
    """
    import torch

    if not isinstance(seed, int):
        raise argparse.ArgumentTypeError(f"{seed} is not an int.")
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ["PYTHONHASHSEED"] = str(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    try:
        import torch_npu
    except ImportError:
        torch_npu = None
    if torch_npu is not None and torch_npu.npu.is_available():
        torch_npu.npu.manual_seed(seed)
        torch_npu.npu.manual_seed_all(seed)
    logger.info("Set random seed to %d and enabled deterministic algorithms.", seed)
