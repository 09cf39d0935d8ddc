# SPDX-License-Identifier: Apache-2.0
"""Models and engines of the ggml tests; a machine that cannot run an engine skips what needs it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import tiny_llama

# What the wheel of xllamacpp is compiled for; without one of them it stops with an illegal instruction.
ENGINE_CPU_FLAGS = {"avx2", "fma", "f16c", "bmi2"}


def missing_cpu_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return ENGINE_CPU_FLAGS - set(line.split(":", 1)[1].split())
    return set(ENGINE_CPU_FLAGS)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> dict[str, Path]:
    """Paths of the tiny Llama: `hf` (folder), `f32`, `f16`, `q8_0`, `q4_0` (GGUF files)."""
    return tiny_llama.write_models(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def qwen2_models(tmp_path_factory) -> dict[str, Path]:
    """The same for a Qwen2: biases on q, k, v, and rope that pairs halves."""
    return tiny_llama.write_models(tmp_path_factory.mktemp("qwen2"), "qwen2", types=("f32",))


@pytest.fixture(scope="session")
def mixtral_models(tmp_path_factory) -> dict[str, Path]:
    """The same for a Mixtral: four experts in each layer, of which a token uses two."""
    return tiny_llama.write_models(tmp_path_factory.mktemp("mixtral"), "mixtral")


@pytest.fixture(scope="session")
def llama_engine() -> None:
    """Skips where llama.cpp of the wheel xllamacpp is not installed or cannot run."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    if missing := missing_cpu_flags():
        pytest.skip(f"the wheel of xllamacpp needs a CPU with {', '.join(sorted(missing))}")


@pytest.fixture(scope="session")
def build_folder() -> Path:
    return Path(os.environ.get("ASSAY_BUILD_DIR", "build/release")).absolute()


@pytest.fixture(scope="session")
def naive_probe(build_folder) -> Path:
    """The library of naive_probe.cpp, to be preloaded."""
    library = build_folder / "tests" / "ggml" / "ggml_naive_probe.so"
    assert library.exists(), f"{library} is not built; set ASSAY_BUILD_DIR to a build with ASSAY_BUILD_TESTS=ON"
    return library


@pytest.fixture(scope="session")
def ggml_host(build_folder) -> Path:
    """The program of examples/ggml/host, linked to the ggml of the wheel pywhispercpp."""
    program = build_folder / "examples" / "ggml" / "ggml_host"
    if importlib.util.find_spec("_pywhispercpp") is None:
        pytest.skip("pywhispercpp is not installed")
    assert program.exists(), f"{program} is not built; set ASSAY_BUILD_DIR to a build with ASSAY_BUILD_TESTS=ON"
    return program
