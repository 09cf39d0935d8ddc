# SPDX-License-Identifier: Apache-2.0
"""Does a row of a batch depend on its neighbours, or on the shape of the batch? ``assay.invariance(run)``.

    run = assay.invariance.hugging_face(model)
    found = assay.invariance(run, vocabulary=model.config.vocab_size)
    assert found, str(found)

The program is run once a scenario, on the same row: alone, in batches, with other neighbours, its prompt in chunks, its
prefix cached, with one and two threads. ``python -m assay.invariance MODEL_DIR`` is the ready program for Hugging Face,
which `assay invariance -- CMD` runs with the file of a scenario in ``ASSAY_SCENARIO``. docs/invariance.md
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional, Union

from assay._run_folder import run_folder
from assay.errors import FormatError

__all__ = ["Invariance", "Scenario", "check", "hugging_face", "judge", "load_scenario", "scenarios"]

VERSION = 1
NEIGHBOURS = ("a", "b", "c")  # sets of them; the row beside the first is held against itself beside the others


@dataclass
class Scenario:
    """Which forward calls a program makes: each of `chunks` and then each of `decode` is one.

    Attributes:
        name: "alone", "neighbours-a" ...; also the name of its run.
        rows: the prompts, of equal lengths: one batch.
        row: which of them is looked at.
        chunks: lengths of the parts that the prompts are given in, one forward call each; together their length.
        prefix: how many of the tokens are in the cache already, put there by a call of their own before.
        threads: of the program; 0: as it chooses.
        decode: tokens given after the prompts, one of each row in a call.
    """

    name: str
    rows: list[list[int]]
    row: int = 0
    chunks: list[int] = field(default_factory=list)
    prefix: int = 0
    threads: int = 0
    decode: list[list[int]] = field(default_factory=list)
    version: int = VERSION

    def calls(self) -> list[list[list[int]]]:
        """The token ids of each forward call, ``[batch, length]``."""
        ends = [self.prefix] if self.prefix else []
        rest = self.chunks or [len(self.rows[0]) - self.prefix]
        for length in rest:
            ends.append((ends[-1] if ends else 0) + length)
        begins = [0, *ends[:-1]]
        prompts = [[row[first:last] for row in self.rows] for first, last in zip(begins, ends)]
        return prompts + [[[token] for token in tokens] for tokens in self.decode]

    def write(self, path: Union[str, Path]) -> None:
        """Writes the file that ``ASSAY_SCENARIO`` names."""
        Path(path).write_text(json.dumps(asdict(self)))


def load_scenario(path: Union[str, Path, None] = None) -> Scenario:
    """Reads the file at `path`, or the one that ``ASSAY_SCENARIO`` names.

    Raises:
        assay.FormatError: there is none, or it is of another version.
    """
    path = path or os.environ.get("ASSAY_SCENARIO")
    if not path:
        raise FormatError("Usage", "ASSAY_SCENARIO names no scenario; assay invariance -- CMD sets it")
    fields = json.loads(Path(path).read_text())
    if fields.get("version") != VERSION:
        raise FormatError("Unsupported", f"a scenario of version {fields.get('version')}; this is {VERSION}", str(path))
    return Scenario(**fields)


def scenarios(
    *, vocabulary: int = 256, length: int = 6, batch: int = 3, decode: int = 2, seed: int = 0
) -> list[Scenario]:
    """The scenarios of a check, each of which holds the same row.

    Args:
        vocabulary: tokens are drawn from 1 to this one.
        length: of the prompts, at least 3.
        batch: the largest number of rows, at least 2.
        decode: how many tokens follow the prompt.
        seed: of the tokens.
    """
    if length < 3 or batch < 2 or vocabulary < 3:
        raise FormatError("Usage", "a prompt has at least 3 tokens, a batch 2 rows, a vocabulary 3 tokens")
    draw = random.Random(seed)

    def row() -> list[int]:
        return [draw.randrange(1, vocabulary) for _ in range(length + decode)]

    mine = row()

    def made(name: str, rows: list[list[int]], at: int, **more: Any) -> Scenario:
        tokens = [[one[length + k] for one in rows] for k in range(decode)]
        return Scenario(name, [one[:length] for one in rows], at, decode=tokens, **more)

    found = [made(f"equal-{count}", [mine] * count, 0) for count in range(1, batch + 2)]
    middle = batch // 2
    for name in NEIGHBOURS:
        rows = [row() for _ in range(batch)]
        rows[middle] = mine
        found.append(made(f"neighbours-{name}", rows, middle))
    half = length // 2
    found.append(made("chunks", [mine], 0, chunks=[length - half, half]))
    found.append(made("prefix", [mine], 0, prefix=half))
    found += [made(f"threads-{count}", [mine], 0, threads=count) for count in (1, 2)]
    return found


class Invariance:
    """What was found. True when no neighbour changes a row."""

    def __init__(self, fields: dict[str, Any]):
        self._fields = fields

    def __bool__(self) -> bool:
        return not self.leaks

    def __repr__(self) -> str:
        return f"<Invariance: {self.sentence}>"

    def __str__(self) -> str:
        lines = [self.sentence]
        lines += [f"leak: {_place(leak)}" for leak in self.leaks[1:10]]
        lines += [f"not invariant: {_kernel(kernel)}" for kernel in self.not_invariant[:10]]
        lines += [
            f"depends on the number of threads: {one['operator']} in {one['pattern']}, {one['places']} places"
            for one in self._fields["threads"][:10]
        ]
        lines += [f"logits: {_logits(one)}" for one in self._fields["logits"] if one["different"]]
        return "\n".join([*lines, f"next: {self._fields['next']}"]) + "\n"

    @property
    def leaks(self) -> list[dict[str, Any]]:
        """Operators whose result for the row changes with its neighbours' content, in the order of execution."""
        return list(self._fields["leaks"])

    @property
    def not_invariant(self) -> list[dict[str, Any]]:
        """Kernels that compute the same row otherwise in a batch, and from which size on."""
        return list(self._fields["not_invariant"])

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        judged, unsplit = self._fields["judged"], self._fields["unsplit"]
        if self.leaks:
            return f"leaks: {_place(self.leaks[0])}"
        text = f"no leak: {judged} operators compute the same bits for the row whatever its neighbours are"
        if unsplit:
            text += f"; {unsplit} mix rows and were not judged"
        if self.not_invariant:
            text += f"; not invariant: {len(self.not_invariant)} kernels"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Everything, as ``assay invariance --json`` prints it."""
        return dict(self._fields)


def _place(one: dict[str, Any]) -> str:
    place = f"{one['module'] or one['node']} ({one['operator']}, step {one['step']}"
    place += f"; {one['source']})" if one["source"] else ")"
    text = f"{place}: the row's inputs are equal bit for bit, its output is another one beside other neighbours"
    if one["mixed"]:
        text += f", by way of {', '.join(one['mixed'])}, in which rows are mixed"
    return f"{text}; {one['different']} elements differ, relative L2 {one['relative_error'] or 0:.2g}"


def _kernel(one: dict[str, Any]) -> str:
    ulp = "" if one["largest_ulp"] is None else f", at most {one['largest_ulp']:.3g} ULP"
    shape = "x".join(str(size) for size in one["shape"])
    return (
        f"{one['operator']} in {one['module'] or one['node']}, [{shape}]: from {one['from_batch']} rows on{ulp}, "
        f"{one['places']} times"
    )


def _logits(one: dict[str, Any]) -> str:
    text = f"{one['scenario']}: {one['different']} differ from the row alone"
    text += f", at most {one['largest_ulp']:.3g} ULP of the largest"
    if not one["flipped"]:
        return text
    return f"{text}; another token is chosen{', a near tie' if one['near_tie'] else ''}"


def check(
    run: Callable[[Scenario], Any],
    *,
    vocabulary: int = 256,
    length: int = 6,
    batch: int = 3,
    decode: int = 2,
    seed: int = 0,
    path: Optional[Union[str, Path]] = None,
) -> Invariance:
    """Runs a program once a scenario, in this process, and says on what a row of it depends.

    Args:
        run: called with a :class:`Scenario`; makes exactly its forward calls, on a cache of its own.
        vocabulary, length, batch, decode, seed: of :func:`scenarios`.
        path: a folder for the runs; without one they are not kept.

    Returns:
        What was found; true when there is no leak.

    Raises:
        assay.FormatError: nothing was captured, or the arguments make no scenario.
    """
    from assay.inject import outermost

    wanted = scenarios(vocabulary=vocabulary, length=length, batch=batch, decode=decode, seed=seed)
    if path is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
    with run_folder(path, "assay_invariance_") as folder:
        for scenario in wanted:
            target = folder / scenario.name
            with outermost.captured_calls(str(target), "operator", digest=True) as injection:
                run(scenario)
            if not target.exists():
                raise FormatError("NotCaptured", f"nothing was captured: {injection.missing}")
        return judge(folder, wanted, "assay invariance -- python -m assay.invariance MODEL_DIR")


def judge(folder: Path, wanted: Sequence[Scenario], advice: str) -> Invariance:
    """The runs of some scenarios, by their names in a folder, against each other.

    Args:
        advice: the command that comes next when nothing is wrong.
    """
    opcheck: Any = importlib.import_module("assay._opcheck")

    def path(name: str) -> str:
        return str(folder / name)

    counts = sorted(int(one.name.split("-")[1]) for one in wanted if one.name.startswith("equal-"))
    batch = counts[-2]
    near = next(one for one in wanted if one.name == "neighbours-a")
    rows = opcheck._Rows(path(f"equal-{batch}"), path(f"equal-{batch + 1}"), batch)
    beside = [
        json.loads(rows.compare(path("neighbours-a"), near.row, path(name), near.row))
        for name in (*(f"neighbours-{name}" for name in NEIGHBOURS[1:]), f"equal-{batch}")
    ]
    kernels: dict[tuple[str, str], dict[str, Any]] = {}
    for count in counts[1:-1]:
        of_count = opcheck._Rows(path(f"equal-{count}"), path(f"equal-{count + 1}"), count)
        found = json.loads(of_count.compare(path("equal-1"), -1, path(f"equal-{count}"), 0))
        _add_kernels(kernels, found["findings"], count)
    reference = _logits_of(folder / "equal-1", 0, 1)
    logits = [
        _logits_difference(reference, _logits_of(folder / one.name, one.row, len(one.rows)), one.name)
        for one in wanted
        if one.name != "equal-1"
    ]
    return Invariance(
        {
            "leaks": _joined(beside),
            "not_invariant": list(kernels.values()),
            "judged": max(one["judged"] for one in beside),
            "inherited": min(one["inherited"] for one in beside),
            "unsplit": min(one["unsplit"] for one in beside),
            "content_dependent": sorted({module for one in beside for module in one["content_dependent"]}),
            "threads": _depending_on_threads(folder),
            "logits": [one for one in logits if one is not None],
            "scenarios": [one.name for one in wanted],
            "next": advice,
        }
    )


def _depending_on_threads(folder: Path) -> list[dict[str, Any]]:
    """Kernels that compute other bits with two threads than with one, as `assay repeat --threads` lists them."""
    opcheck: Any = importlib.import_module("assay._opcheck")
    runs = opcheck._RepeatedRuns(str(folder / "threads-1"))
    runs.add(str(folder / "threads-2"))
    return list(json.loads(runs.json("", ""))["alike"])


def _joined(comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of all, each place once, with the number of comparisons that found it; in order of execution."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for comparison in comparisons:
        for one in comparison["findings"]:
            key = (one["rank"], one["step"], one["call"], one["node"], one["slot"])
            found.setdefault(key, {**one, "times": 0})["times"] += 1
    return sorted(found.values(), key=lambda one: (one["rank"], one["step"], one["index"]))


def _add_kernels(kernels: dict[tuple[str, str], dict[str, Any]], findings: list[dict[str, Any]], count: int) -> None:
    """Each kind of kernel once a shape of the row, with the smallest batch and the largest difference."""
    for one in findings:
        if one["mixed"]:
            continue
        row = [size for size in one["shape"]]
        key = (one["operator"], one["module"].rsplit(".", 1)[-1])
        known = kernels.setdefault(key, {**one, "shape": row, "from_batch": count, "places": 0})
        known["places"] += 1
        if (one["largest_ulp"] or 0) > (known["largest_ulp"] or 0):
            known["largest_ulp"] = one["largest_ulp"]


def _logits_of(folder: Path, row: int, rows: int) -> Any:
    """What the model returned last for the row: the values of its last position, or None."""
    import assay

    found = [
        record
        for record in assay.open(str(folder)).records
        if record.node == "" and record.role == "output" and record.slot in ("", "0", "logits") and record.file
    ]
    if not found:
        return None
    last = max(found, key=lambda record: record.order if record.step is None else (record.step, record.order))
    values = last.numpy()
    if values.ndim == 0 or values.shape[0] != rows:
        return None
    return values[row].reshape(-1, values.shape[-1])[-1]


def _logits_difference(reference: Any, other: Any, name: str) -> Optional[dict[str, Any]]:
    import numpy

    if reference is None or other is None or reference.shape != other.shape:
        return None
    error = numpy.abs(reference.astype(numpy.float64) - other)
    largest = numpy.abs(reference).max()
    unit = float(numpy.spacing(largest)) if reference.dtype.kind == "f" else 1.0
    best, second = numpy.sort(reference.astype(numpy.float64))[:-3:-1]
    return {
        "scenario": name,
        "different": int((error > 0).sum()),
        "largest_ulp": float(error.max()) / unit,
        "flipped": bool(reference.argmax() != other.argmax()),
        "near_tie": bool(best - second <= 2 * error.max()),
    }


def hugging_face(model: Any) -> Callable[[Scenario], Any]:
    """The program that drives a model of Hugging Face: one cache a scenario, one forward call for each of its calls."""
    import torch

    def run(scenario: Scenario) -> Any:
        before = torch.get_num_threads()
        cache: Any = None
        result: Any = None
        try:
            if scenario.threads:
                torch.set_num_threads(scenario.threads)
            with torch.no_grad():
                for tokens in scenario.calls():
                    result = model(input_ids=torch.tensor(tokens), past_key_values=cache, use_cache=True)
                    cache = result.past_key_values
        finally:
            torch.set_num_threads(before)
        return result.logits

    return run


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the scenario of ``ASSAY_SCENARIO`` on a checkpoint of Hugging Face."""
    parser = argparse.ArgumentParser(prog="python -m assay.invariance", description=main.__doc__)
    parser.add_argument("model", help="folder of the checkpoint")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args(arguments)
    import torch
    import transformers

    scenario = load_scenario()
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
    hugging_face(model)(scenario)  # from_pretrained() gives it in eval mode
    return 0


class _Callable(types.ModuleType):
    """The module is its main function, too: ``assay.invariance(run)``."""

    def __call__(self, *arguments: Any, **options: Any) -> Invariance:
        return check(*arguments, **options)


sys.modules[__name__].__class__ = _Callable

if __name__ == "__main__":
    sys.exit(main())
