# SPDX-License-Identifier: Apache-2.0
"""Test suites of other people's libraries, run plainly and under `assay dump`: each test ends as it did.

The libraries come from the registry as they are published with their tests, and lie beside the campaign's results. A
case is a file of tests at one level; a test that fails plainly, too, says nothing. At the level "graph" every module is
compiled: plainly by torch's own backend `aot_eager`, under the capture by ours, which dumps all operators.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from bench.campaign.campaign import FAILED, OK, SKIPPED, Campaign, Case, Result, Workplace
from bench.compare_speed import find_assay
from bench.measure import NotAvailable
from bench.report import Row

LEVELS = ("module", "operator", "graph")
_COMPILED_SUITE = Path(__file__).with_name("compiled_suite.py")
_MINUTES = 10


@dataclass(frozen=True)
class Suite:
    """A library whose published source holds its tests.

    Attributes:
        version: the one whose tests are known to run with our torch.
        needs: what it imports beside torch and numpy, by exact versions.
        tests: folder of the tests in its source, and files in it that belong to no GPU and no network.
        environment: variables for its tests.
    """

    version: str
    needs: tuple[str, ...]
    tests: str
    files: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


SUITES = {
    "einops": Suite(
        "0.8.2",
        (),
        "einops/tests",
        ("test_layers", "test_einsum", "test_other"),
        {"EINOPS_TEST_BACKENDS": "numpy,torch"},
    ),
    "linear_operator": Suite(
        "0.6.1",
        ("jaxtyping==0.3.2", "wadler-lindig==0.1.7", "scipy==1.15.3", "mpmath==1.3.0"),
        "test",
        (
            "operators/test_dense_linear_operator", "operators/test_toeplitz_linear_operator",
            "operators/test_kronecker_product_linear_operator", "operators/test_sum_linear_operator",
            "operators/test_triangular_linear_operator", "functions/test_solve", "functions/test_matmul",
            "utils/test_cholesky", "utils/test_linear_cg", "operators/test_diag_linear_operator",
        ),
    ),
    "gpytorch": Suite(
        "1.15.2",
        (
            "linear_operator==0.6.1", "jaxtyping==0.3.2", "wadler-lindig==0.1.7", "scipy==1.15.3",
            "scikit-learn==1.6.1", "joblib==1.5.1", "threadpoolctl==3.6.0",
        ),
        "test",
        (
            "kernels/test_rbf_kernel", "kernels/test_matern_kernel", "kernels/test_scale_kernel",
            "kernels/test_periodic_kernel", "kernels/test_additive_and_product_kernels", "models/test_exact_gp",
            "models/test_model_list", "likelihoods/test_gaussian_likelihood", "distributions/test_multivariate_normal",
            "examples/test_simple_gp_regression", "test_module", "kernels/test_linear_kernel",
        ),
    ),
    "compressed_tensors": Suite(
        "0.20.1",
        ("loguru==0.7.3", "psutil==7.0.0"),
        "tests",
        (
            "test_quantization/test_quant_scheme", "test_quantization/test_quant_args",
            "test_quantization/lifecycle/test_forward", "test_quantization/lifecycle/test_initialize",
            "test_quantization/lifecycle/test_apply", "test_transform/factory/test_correctness",
            "test_utils/test_match",
        ),
    ),
    "peft": Suite(
        "0.21.2",
        ("accelerate==1.15.0", "psutil==7.0.0", "tqdm", "packaging", "pyyaml", "parameterized==0.9.0"),
        "tests",
        ("test_bufferdict", "test_incremental_pca", "test_vblora", "test_vera", "test_randlora", "test_low_level_api"),
    ),
}  # fmt: skip


class Suites(Campaign):
    """See the module."""

    name = "suites"
    title = "Other people's test suites under a capture"
    about = (
        "Each case is a file of tests of a published library, run by pytest plainly and under `assay dump`, at one of "
        "the levels; at the level of graphs with every module compiled, by torch's backend `aot_eager` and by ours, "
        "which dumps *graphs*. "
        "*otherwise*: tests that end otherwise under the capture than without; it must be 0. Tests that fail without "
        "a capture, too, are among *tests*.",
    )
    weight = 0.5
    timeout_s = 2 * 60.0 * _MINUTES
    columns = ["", "files", "tests", "graphs", "otherwise"]

    def unavailable(self) -> Optional[str]:
        """Without a torch there is nothing to capture."""
        return None if find_assay(None) is not None else "no `assay` command is installed"

    def cases(self, seed: int) -> Iterator[Case]:
        """All files of all libraries at all levels, in a drawn order."""
        names = [
            f"{suite}-{level}-{i}" for suite, one in SUITES.items() for level in LEVELS for i in range(len(one.files))
        ]
        for name in random.Random(seed).sample(names, len(names)):
            yield Case(name)

    def sample(self) -> Iterable[Case]:
        """Layers, and kernels that override `__call__`; none that are compiled, which takes 40 s a file."""
        return [
            Case("einops-module-0"),
            Case("einops-operator-0"),
            Case("gpytorch-module-0"),
            Case("gpytorch-operator-5"),
        ]

    def case_of(self, name: str) -> Case:
        """From ``<library>-<level>-<number of the file>``."""
        suite, level, number = [*name.split("-"), "", ""][:3]
        if (
            suite not in SUITES
            or level not in LEVELS
            or not number.isdigit()
            or int(number) >= len(SUITES[suite].files)
        ):
            raise ValueError("the name must be a library, a level and the number of a file, with dashes")
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        """Runs the file twice, compares test by test."""
        name, level, number = case.name.split("-")
        suite = SUITES[name]
        try:
            source, packages = _library(name, suite, work.kept)
        except NotAvailable as why:
            return {"outcome": SKIPPED, "reason": str(why)}
        file = source / suite.tests / f"{suite.files[int(number)]}.py"
        folder = work.scratch / case.name
        folder.mkdir()
        if level == "graph":
            config = {"dump_config.enable_dump": True, "dump_config.dump_path": str(folder)}
            (folder / "config.json").write_text(json.dumps({**config, "execution.layout": "native"}))
            plain_command, command = ([sys.executable, str(_COMPILED_SUITE), name] for name in ("aot_eager", "assay"))
        else:
            plain_command = [sys.executable, "-m", "pytest"]
            command = [str(find_assay(None)), "dump", "--level", level, "-o", str(folder / "run"), "--", *plain_command]
        plain = _outcomes(plain_command, file, source, packages, suite, folder / "plain")
        captured = _outcomes(command, file, source, packages, suite, folder / "captured")
        otherwise = sorted(test for test in plain.keys() | captured.keys() if plain.get(test) != captured.get(test))
        graphs = sum(len(json.loads(path.read_text())["graphs"]) for path in folder.rglob("graphs.json"))
        counts = {"tests": len(plain), "graphs": graphs, "otherwise": len(otherwise)}
        result: Result = {"suite": name, **counts, "outcome": OK}
        if not plain:
            return {**result, "outcome": FAILED, "reason": f"{file.name}: pytest ran no test of it"}
        if otherwise:
            first = otherwise[0]
            reason = f"{first}: {plain.get(first)} without, {captured.get(first)} with; {len(otherwise)} in all"
            return {**result, "outcome": FAILED, "reason": reason}
        return result

    def rows(self, results: list[Result]) -> list[Row]:
        """By library."""
        rows = []
        for name, suite in SUITES.items():
            of_suite = [result for result in results if result.get("suite") == name]
            if of_suite:
                counts = {"files": len(of_suite)}
                counts |= {key: sum(one.get(key, 0) for one in of_suite) for key in self.columns[2:]}
                cells = {key: str(count) for key, count in counts.items()}
                rows.append(Row(f"{name} {suite.version}", cells, data=counts))
        return rows


def _library(name: str, suite: Suite, kept: Path) -> tuple[Path, Path]:
    """Returns the folders of a library's source and of the packages that it needs, fetched once.

    Raises:
        NotAvailable: the registry does not have them, or there is none.
    """
    home = kept / f"{name}-{suite.version}"
    source, packages = home / f"{name}-{suite.version}", home / "packages"
    done = home / "complete"
    if not done.exists():
        home.mkdir(parents=True, exist_ok=True)
        _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(home), f"{name}=={suite.version}")
        with tarfile.open(next(home.glob("*.tar.gz"))) as archive:
            archive.extractall(home, filter="data")
        if suite.needs:
            _pip("install", "--no-deps", "--target", str(packages), *suite.needs)
        done.touch()
    return source, packages


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotAvailable(f"pip {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}")


def _outcomes(
    pytest: list[str], file: Path, source: Path, packages: Path, suite: Suite, report: Path
) -> dict[str, str]:
    """Runs one file of tests with the command that pytest is called by; returns how each of its tests ended."""
    xml = report.with_suffix(".xml")
    paths = [str(source / "src") if (source / "src").exists() else str(source), str(packages)]
    command = [*pytest, "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += [f"--junitxml={xml}", f"--rootdir={source}", "-o", "addopts=", str(file)]
    environment = {**os.environ, **suite.environment, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment["ASSAY_GRAPH_CONFIG"] = str(report.with_name("config.json"))
    with report.with_suffix(".log").open("w") as log:
        subprocess.run(
            command, cwd=source, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=60 * _MINUTES
        )
    if not xml.exists():
        return {}
    return {
        f"{test.get('classname')}.{test.get('name')}": next(
            (child.tag for child in test if child.tag in ("failure", "error", "skipped")), "passed"
        )
        for test in ElementTree.parse(xml).iter("testcase")
    }
