# SPDX-License-Identifier: Apache-2.0
"""libassay.so, on which the command and the Python modules stand: what crosses between them."""

from __future__ import annotations

import subprocess
import sys

# 72 MB of float64 for each operand, with 30 MB left: std::bad_alloc is thrown in the library and caught in the module.
SHORTAGE = """
import resource, numpy as np
from assay import reference
a = np.ones((3000, 3000), np.float32)
reference.matmul(a[:8, :8], a[:8, :8])
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 30 * 2**20,) * 2)
try:
    reference.matmul(a, a)
except MemoryError as error:
    print("MemoryError:", error)
print(reference.matmul(a[:8, :8], a[:8, :8]).sum())
"""


def test_a_shortage_of_memory_in_the_library_is_an_exception_in_python_and_the_next_call_works():
    done = subprocess.run([sys.executable, "-c", SHORTAGE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "MemoryError: std::bad_alloc\n512.0\n"), done.stderr
