# SPDX-License-Identifier: Apache-2.0
"""Does a row of a batch depend on its neighbours, or on the shape of the batch? ``assay.invariance(run)``.

    run = assay.invariance.hugging_face(model)
    found = assay.invariance(run, vocabulary=model.config.vocab_size)
    assert found, str(found)

The program is run once a scenario, on the same row: alone, in batches, with other neighbours, first and last among
them, behind and before padding, its prompt in chunks, its prefix cached, with one and two threads.
``python -m assay.invariance MODEL`` is the ready program for Hugging Face and llama.cpp, which `assay invariance --
CMD` runs with the file of a scenario in ``ASSAY_SCENARIO``, or of all in ``ASSAY_SCENARIOS``. docs/invariance.md
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import json
import os
import random
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Optional, Union

from assay._run_folder import run_folder
from assay.errors import FormatError

__all__ = [
    "Invariance",
    "Scenario",
    "ScenarioRun",
    "check",
    "hugging_face",
    "judge",
    "llama_cpp",
    "load_scenario",
    "load_scenarios",
    "runs_of_one_process",
    "scenarios",
    "write_scenarios",
]

# Native, without a stub: this file has its types.
_opcheck: Any = importlib.import_module("assay._opcheck")

VERSION = 2
NEIGHBOURS = ("a", "b", "c")  # sets of them; the row beside the first is held against itself beside the others
PLACED = NEIGHBOURS[:2]  # those with which it stands first, last and padded, too


@dataclass
class Scenario:
    """Which forward calls a program makes: each of `chunks` and then each of `decode` is one.

    Attributes:
        name: "alone", "neighbours-a" ...; also the name of its run.
        rows: the prompts, of equal lengths: one batch. Those that are shorter are padded with token 0.
        row: which of them is looked at.
        chunks: lengths of the parts that the prompts are given in, one forward call each; together their length.
        prefix: how many of the tokens are in the cache already, put there by a call of their own before.
        threads: of the program; 0: as it chooses.
        decode: tokens given after the prompts, one of each row in a call.
        padding: "left" or "right": on which side; "": no row is padded.
        lengths: of the prompts without padding; empty: none is padded.
    """

    name: str
    rows: list[list[int]]
    row: int = 0
    chunks: list[int] = field(default_factory=list)
    prefix: int = 0
    threads: int = 0
    decode: list[list[int]] = field(default_factory=list)
    padding: str = ""
    lengths: list[int] = field(default_factory=list)
    version: int = VERSION

    def spans(self) -> list[tuple[int, int]]:
        """The positions of each forward call: from one to another, padding included."""
        prompts = ([self.prefix] if self.prefix else []) + (self.chunks or [len(self.rows[0]) - self.prefix])
        ends = list(itertools.accumulate(prompts + [1] * len(self.decode)))
        return list(zip([0, *ends[:-1]], ends))

    def calls(self) -> list[list[list[int]]]:
        """The token ids of each forward call, ``[batch, length]``."""
        whole = [row + [tokens[at] for tokens in self.decode] for at, row in enumerate(self.rows)]
        return [[row[first:last] for row in whole] for first, last in self.spans()]

    def _padding_of(self, row: int) -> tuple[int, int]:
        """How many positions of padding are in front of a row's prompt, and behind it."""
        count = len(self.rows[row]) - self.lengths[row] if self.lengths else 0
        return (count, 0) if self.padding == "left" else (0, count)

    def masks(self) -> list[list[list[int]]]:
        """The attention mask of each forward call, ``[batch, keys]``: 1 for tokens, 0 for padding."""
        rows = []
        for at, row in enumerate(self.rows):
            before, behind = self._padding_of(at)
            rows.append([0] * before + [1] * (len(row) - before - behind) + [0] * behind + [1] * len(self.decode))
        return [[row[:last] for row in rows] for _, last in self.spans()]

    def positions(self) -> list[list[list[int]]]:
        """The position of each token in each forward call, ``[batch, length]``, counted without padding."""
        whole = [[max(0, count - 1) for count in itertools.accumulate(row)] for row in self.masks()[-1]]
        return [[row[first:last] for row in whole] for first, last in self.spans()]

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
    return Scenario(**_of_this_version(json.loads(Path(path).read_text()), path))


def _of_this_version(fields: dict[str, Any], path: Union[str, Path]) -> dict[str, Any]:
    if fields.get("version") != VERSION:
        raise FormatError("Unsupported", f"a scenario of version {fields.get('version')}; this is {VERSION}", str(path))
    return fields


def load_scenarios() -> list[Scenario]:
    """Reads the file that ``ASSAY_SCENARIOS`` names; without it the one scenario of ``ASSAY_SCENARIO``.

    Raises:
        assay.FormatError: there is none, or they are of another version.
    """
    path = os.environ.get("ASSAY_SCENARIOS")
    if not path:
        return [load_scenario()]
    fields = _of_this_version(json.loads(Path(path).read_text()), path)
    return [Scenario(**one) for one in fields["scenarios"]]


def write_scenarios(wanted: Sequence[Scenario], path: Union[str, Path]) -> None:
    """Writes the file that ``ASSAY_SCENARIOS`` names."""
    Path(path).write_text(json.dumps({"version": VERSION, "scenarios": [asdict(one) for one in wanted]}))


def scenarios(
    *,
    vocabulary: int = 256,
    length: int = 6,
    batch: int = 3,
    decode: int = 2,
    seed: int = 0,
    padding: bool = True,
) -> list[Scenario]:
    """The scenarios of a check, each of which holds the same row.

    Args:
        vocabulary: tokens are drawn from 1 to this one.
        length: of the prompts, at least 3.
        batch: the largest number of rows, at least 2.
        decode: how many tokens follow the prompt.
        seed: of the tokens.
        padding: False leaves out the scenarios with longer neighbours.
    """
    if length < 3 or batch < 2 or vocabulary < 3:
        raise FormatError("Usage", "a prompt has at least 3 tokens, a batch 2 rows, a vocabulary 3 tokens")
    draw = random.Random(seed)

    def row(more: int = 0) -> list[int]:
        return [draw.randrange(1, vocabulary) for _ in range(more + length + decode)]

    mine = row()
    middle = batch // 2

    def made(name: str, rows: list[list[int]], at: int, **more: Any) -> Scenario:
        tokens = [[one[length + k] for one in rows] for k in range(decode)]
        return Scenario(name, [one[:length] for one in rows], at, decode=tokens, **more)

    found = [made(f"equal-{count}", [mine] * count, 0) for count in range(1, batch + 2)]
    beside = {name: [row() for _ in range(batch - 1)] for name in NEIGHBOURS}
    for name, others in beside.items():
        found.append(made(f"neighbours-{name}", [*others[:middle], mine, *others[middle:]], middle))
    half = length // 2
    found.append(made("chunks", [mine], 0, chunks=[length - half, half]))
    found.append(made("prefix", [mine], 0, prefix=half))
    found += [made(f"threads-{count}", [mine], 0, threads=count) for count in (1, 2)]
    for place, at in (("first", 0), ("last", batch - 1)):
        for name in PLACED if at != middle else ():
            found.append(made(f"{place}-{name}", [*beside[name][:at], mine, *beside[name][at:]], at))
    return found + (_padded(mine, row, length, batch, decode) if padding else [])


def _padded(mine: list[int], row: Callable[[int], list[int]], length: int, batch: int, decode: int) -> list[Scenario]:
    """The row in the middle of longer ones, so that it is padded. Behind padding nothing is decoded."""
    pad, middle = max(1, length // 2), batch // 2
    found = []
    for side, name in itertools.product(("left", "right"), PLACED):
        rows = [row(pad) for _ in range(batch)]
        prompt = [0] * pad + mine[:length] if side == "left" else mine[:length] + [0] * pad
        rows[middle] = prompt + mine[length:]
        lengths = [length if at == middle else length + pad for at in range(batch)]
        tokens = [[one[length + pad + k] for one in rows] for k in range(decode if side == "left" else 0)]
        prompts = [one[: length + pad] for one in rows]
        found.append(Scenario(f"padded-{side}-{name}", prompts, middle, decode=tokens, padding=side, lengths=lengths))
    return found


class Invariance:
    """What was found. True when no neighbour changes a row."""

    def __init__(self, fields: dict[str, Any], page: Optional[_Page] = None):
        self._fields = fields
        self._page = page

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
            text += f"; not invariant: {_counted(len(self.not_invariant), 'kernel')}"
        beyond = sum(one["beyond_rounding"] for one in self.not_invariant)
        return f"{text}, {beyond} of them by more than rounding explains" if beyond else text

    def to_dict(self) -> dict[str, Any]:
        """Everything, as ``assay invariance --json`` prints it."""
        return dict(self._fields)

    def with_next(self, command: str) -> Invariance:
        """The same with another command that comes next."""
        return Invariance({**self._fields, "next": command}, self._page)

    def to_html(self, path: Union[str, Path]) -> None:
        """Writes one page to open in a browser, as ``assay invariance --html`` does; `path` ends with ``.html``."""
        assert self._page is not None, "judge() makes the page"
        self._page.write(self, str(path))


def _place(one: dict[str, Any]) -> str:
    place = f"{one['module'] or one['node']} ({one['operator']}, step {one['step']}"
    place += f"; {one['source']})" if one["source"] else ")"
    text = f"{place}: the row's inputs are equal bit for bit, its output is another one beside other neighbours"
    if one["mixed"]:
        text += f", by way of {', '.join(one['mixed'])}, in which rows are mixed"
    return f"{text}; {one['different']} elements differ, relative L2 {one['relative_error'] or 0:.2g}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _kernel(one: dict[str, Any]) -> str:
    ulp = "" if one["largest_ulp"] is None else f", at most {one['largest_ulp']:.3g} ULP"
    shape = "x".join(str(size) for size in one["shape"])
    where = [f"from {one['from_batch']} rows on"] if one["from_batch"] else []
    where += [name for name in one["scenarios"] if not name.startswith("equal-")]
    beyond = ", by more than rounding explains" if one["beyond_rounding"] else ""
    return (
        f"{one['operator']} in {one['module'] or one['node']}, [{shape}]: {', '.join(where)}{ulp}{beyond}, "
        f"{_counted(one['places'], 'time')}"
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
    padding: bool = True,
    path: Optional[Union[str, Path]] = None,
) -> Invariance:
    """Runs a program once a scenario, in this process, and says on what a row of it depends.

    Args:
        run: called with a :class:`Scenario`; makes exactly its forward calls, on a cache of its own.
        vocabulary, length, batch, decode, seed, padding: of :func:`scenarios`.
        path: a folder for the runs; without one they are not kept.

    Returns:
        What was found; true when there is no leak.

    Raises:
        assay.FormatError: nothing was captured, or the arguments make no scenario.
    """
    from assay.inject import outermost

    wanted = scenarios(vocabulary=vocabulary, length=length, batch=batch, decode=decode, seed=seed, padding=padding)
    if path is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
    with run_folder(path, "assay_invariance_") as folder:
        for scenario in wanted:
            target = folder / scenario.name
            with outermost.captured_calls(str(target), "operator", digest=True) as injection:
                run(scenario)
            if not target.exists():
                raise FormatError("NotCaptured", f"nothing was captured: {injection.missing}")
        runs = {one.name: ScenarioRun(str(folder / one.name)) for one in wanted}
        return judge(runs, wanted, "assay invariance -- python -m assay.invariance MODEL_DIR")


@dataclass
class ScenarioRun:
    """Where the run of a scenario lies: a folder of its own, or some steps of one for several.

    Attributes:
        path: of the run.
        first: its first step that is the scenario's.
        steps: how many are; -1: all.
    """

    path: str
    first: int = 0
    steps: int = -1

    @cached_property
    def native(self) -> Any:
        """The run, opened once."""
        return _opcheck._ScenarioRun(self.path, self.first, self.steps)

    def steps_of_call(self, scenario: Scenario) -> int:
        """How many outermost module calls one forward call is.

        Raises:
            assay.FormatError: the program made other forward calls than the scenario has.
        """
        steps = self.native.step_count() if self.steps < 0 else self.steps
        calls = len(scenario.calls())
        if steps == 0 or steps % calls:
            said = f"the program made {_counted(steps, 'forward call')} in the scenario {scenario.name}"
            raise FormatError("Invalid", f"{said}, which has {calls}", self.path)
        return int(steps // calls)


class _Page:
    """What a page shows beside the lists: every operator in every scenario."""

    def __init__(self, alone: ScenarioRun) -> None:
        self._alone = alone
        self._compared: list[tuple[str, ScenarioRun, dict[str, Any], str]] = []
        self._rows: dict[str, list[Any]] = {}
        self._row_of: dict[tuple[Any, ...], int] = {}

    def add(self, scenario: str, run: ScenarioRun, found: dict[str, Any], word: str) -> None:
        """The operators of a run, with what became of each; those of the findings have `word`."""
        self._compared.append((scenario, run, found, word))

    def _fill(self) -> None:
        """Makes the rows, which only a page needs."""
        places: dict[int, list[dict[str, Any]]] = {}
        for scenario, run, found, word in self._compared:
            if id(run) not in places:
                places[id(run)] = json.loads(run.native.places())
            self._add_rows(scenario, places[id(run)], found, word)
        self._compared.clear()

    def _add_rows(self, scenario: str, places: list[dict[str, Any]], found: dict[str, Any], word: str) -> None:
        begin = len(self._rows.get("node", ()))
        findings = {_key(one): one for one in found["findings"]}
        for one in found["findings"]:  # a module's has the place of its first operator
            self._row_of.setdefault(_key(one), begin + one["index"])
        for place, state in zip(places, found["states"]):
            one = findings.get(_key(place), {})
            cells = {
                "scenario": scenario,
                "token_id": place["step"],
                "node": place["node"],
                "op_type": place["operator"],
                "verdict": word if one else state,
                **{name: one.get(name) for name in ("different", "largest_ulp", "relative_error", "slot")},
                "source": place["source"],
                "rank": place["rank"],
                "module": place["module"],
                "call": place["call"],
            }
            for name, value in cells.items():
                self._rows.setdefault(name, []).append(value)

    def write(self, found: Invariance, path: str) -> None:
        self._fill()
        fields = found.to_dict()
        parts = {
            "sentence": found.sentence,
            "tone": "bad" if not found else "open" if found.not_invariant else "good",
            "next": fields["next"],
            "facts": [
                ["operators judged", fields["judged"]],
                ["that read other values", fields["inherited"]],
                ["that mix rows", fields["unsplit"]],
                ["scenarios", len(fields["scenarios"])],
            ],
            "lists": self._lists(found),
            "first_row": self._row_of.get(_key((found.leaks or found.not_invariant or [{}])[0])),
            "rows": self._rows,
        }
        _opcheck._write_scenarios_page(json.dumps(parts), self._alone.native, path)

    def _lists(self, found: Invariance) -> list[dict[str, Any]]:
        flipped = [one for one in found.to_dict()["logits"] if one["flipped"]]
        leaks = [self._item(one, _place(one), [["comparisons that show it", one["times"]]]) for one in found.leaks]
        kernels = [
            self._item(
                one,
                _kernel(one),
                [
                    ["from rows", one["from_batch"]],
                    ["scenarios", ", ".join(one["scenarios"])],
                    ["near ties flipped", sum(line["scenario"] in one["scenarios"] for line in flipped)],
                ],
            )
            for one in found.not_invariant
        ]
        threads = [
            {"place": one["pattern"], "text": f"{one['operator']}, {_counted(one['places'], 'place')}", "facts": []}
            for one in found.to_dict()["threads"]
        ]
        logits = [
            {
                "place": one["scenario"],
                "text": _logits(one),
                "facts": [["near tie", "yes" if one["near_tie"] else "no"], ["token flipped", one["flipped"]]],
            }
            for one in found.to_dict()["logits"]
            if one["different"]
        ]
        named = [
            ("Leaks", leaks, True),
            ("Not invariant", kernels, not leaks),
            ("Depends on the number of threads", threads, False),
            ("Logits that differ from the row alone", logits, False),
        ]
        return [{"title": title, "open": is_open, "items": items} for title, items, is_open in named if items]

    def _item(self, one: dict[str, Any], text: str, more: list[list[Any]]) -> dict[str, Any]:
        facts = [
            ["operator", one["operator"]],
            ["elements that differ", one["different"]],
            ["worst ULP", one["largest_ulp"]],
            ["relative L2", one["relative_error"]],
            ["shape", "x".join(map(str, one["shape"]))],
        ]
        row = self._row_of.get(_key(one))
        return {"place": one["module"] or one["node"], "text": text, "row": row, "facts": facts + more}


def runs_of_one_process(wanted: Sequence[Scenario], path: Union[str, Path]) -> dict[str, ScenarioRun]:
    """The runs of scenarios that one process ran one after the other.

    Raises:
        assay.FormatError: the program made other forward calls.
    """
    calls = [len(one.spans()) for one in wanted]
    steps = _opcheck._step_count(str(path))
    if steps == 0 or steps % sum(calls):
        said = f"the program made {_counted(steps, 'forward call')}, its scenarios have {sum(calls)}"
        raise FormatError("Invalid", said, str(path))
    of_a_call = steps // sum(calls)
    begins = itertools.accumulate([0, *calls[:-1]])
    return {
        one.name: ScenarioRun(str(path), begin * of_a_call, count * of_a_call)
        for one, begin, count in zip(wanted, begins, calls)
    }


def judge(runs: Mapping[str, ScenarioRun], wanted: Sequence[Scenario], advice: str) -> Invariance:
    """The runs of some scenarios against each other.

    Args:
        runs: by the scenarios' names.
        wanted: as :func:`scenarios` makes them.
        advice: the command that comes next when nothing is wrong.

    Raises:
        assay.FormatError: the program made other forward calls.
    """
    return _Judge(runs, {one.name: one for one in wanted}).found(advice)


class _Judge:
    """Holds the runs of the scenarios against each other."""

    def __init__(self, runs: Mapping[str, ScenarioRun], wanted: dict[str, Scenario]) -> None:
        self._runs = runs
        self._wanted = wanted
        self._page = _Page(runs["equal-1"])
        self._kernels: dict[tuple[str, str, bool], dict[str, Any]] = {}
        counts = sorted(int(name.split("-")[1]) for name in wanted if name.startswith("equal-"))
        self._sizes, self._batch = counts[1:-1], counts[-2]
        self._splits: dict[tuple[int, str], Any] = {}

    def found(self, advice: str) -> Invariance:
        for name, scenario in self._wanted.items():
            self._runs[name].steps_of_call(scenario)
        beside = self._beside_other_neighbours()
        self._in_batches()
        self._in_other_calls()
        threads = json.loads(self._runs["threads-1"].native.repeated(self._runs["threads-2"].native))
        self._page.add("threads-2", self._runs["threads-1"], threads["rows"], "not invariant")
        fields = {
            "leaks": _joined(beside),
            "not_invariant": list(self._kernels.values()),
            "judged": max(one["judged"] for one in beside),
            "inherited": min(one["inherited"] for one in beside),
            "unsplit": min(one["unsplit"] for one in beside),
            "content_dependent": sorted({module for one in beside for module in one["content_dependent"]}),
            "threads": threads["alike"],
            "logits": self._logits(),
            "scenarios": list(self._wanted),
            "next": advice,
        }
        return Invariance(fields, self._page)

    def _rows(self, count: int, padding: str = "") -> Any:
        """What two runs of equal rows tell of the tensors of a batch, or of one that is padded."""
        if (count, padding) not in self._splits:
            few, more = (self._runs[f"equal-{number}"].native for number in (count, count + 1))
            self._splits[count, padding] = _opcheck._Rows(few, more, count, self._lengths(count, padding))
        return self._splits[count, padding]

    def _lengths(self, count: int, padding: str) -> list[list[int]]:
        """Tokens and keys of each step without padding and with it."""
        if not padding:
            return []
        plain, padded = self._wanted[f"equal-{count}"], self._wanted[f"padded-{padding}-a"]
        steps = self._runs[f"equal-{count}"].steps_of_call(plain)
        return [
            [last - first, last, padded_last - padded_first, padded_last]
            for (first, last), (padded_first, padded_last) in zip(plain.spans(), padded.spans())
            for _ in range(steps)
        ]

    def _compared(self, first: str, other: str, other_row: int) -> dict[str, Any]:
        """The row in two batches of one shape."""
        scenario = self._wanted[first]
        rows = self._rows(self._batch, scenario.padding)
        a, b = (self._runs[name].native for name in (first, other))
        found: dict[str, Any] = json.loads(rows.compare(a, scenario.row, b, other_row))
        return found

    def _beside_other_neighbours(self) -> list[dict[str, Any]]:
        """Leaks: the row at the same place of batches of one shape."""
        beside = []
        for first in ("neighbours-a", "first-a", "last-a", "padded-left-a", "padded-right-a"):
            if first not in self._wanted:
                continue
            others = [f"{first[:-1]}{name}" for name in NEIGHBOURS[1:]]
            others += [f"equal-{self._batch}"] if first == "neighbours-a" else []
            for other in others:
                if other not in self._wanted:
                    continue
                # Of equal rows each is the row: the one at the same place.
                beside.append(self._compared(first, other, self._wanted[first].row))
                self._page.add(other, self._runs[first], beside[-1], "leak")
        return beside

    def _in_batches(self) -> None:
        """Not invariant: more rows, another place among them."""
        alone = self._runs["equal-1"]
        for count in self._sizes:
            name = f"equal-{count}"
            found = json.loads(self._rows(count).compare(alone.native, -1, self._runs[name].native, 0))
            self._add_kernels(found, alone, name, f"{name} / alone", count)
        for name in ("first-a", "last-a"):
            if name in self._wanted:
                found = self._compared("neighbours-a", name, self._wanted[name].row)
                self._add_kernels(found, self._runs["neighbours-a"], name, name)

    def _in_other_calls(self) -> None:
        """Not invariant: chunks, a cached prefix, padding; position by position."""
        alone = self._runs["equal-1"].native
        for name in ("chunks", "prefix", "padded-left-a", "padded-right-a"):
            if name not in self._wanted:
                continue
            scenario, run = self._wanted[name], self._runs[name]
            pairs = self._call_pairs(scenario)
            if scenario.padding:
                rows = self._rows(self._batch, scenario.padding)
                found = json.loads(rows.compare_padded(alone, run.native, scenario.row, pairs))
            else:
                found = json.loads(_opcheck._compare_calls(alone, run.native, pairs))
            self._add_kernels(found, run, name, f"{name} / alone" if scenario.padding else name)

    def _call_pairs(self, scenario: Scenario) -> list[list[int]]:
        """Twelve numbers for each pair of steps: both steps, and the windows of tokens and of keys."""
        alone = self._wanted["equal-1"]
        steps = self._runs["equal-1"].steps_of_call(alone)
        before = scenario._padding_of(scenario.row)[0]
        pad = sum(scenario._padding_of(scenario.row))
        pairs = []
        for other, (first, last) in enumerate(scenario.spans()):
            begin, end = (first, last) if not pad else (max(0, first - pad), last - pad)
            for call, (whole_begin, whole_end) in enumerate(alone.spans()):
                if not whole_begin <= begin < whole_end:
                    continue
                own = before if first == 0 else 0  # of the call's tokens the first ones are padding
                tokens = [whole_end - whole_begin, begin - whole_begin, last - first, own, end - begin]
                keys = [whole_end, 0, last, before, end]
                pairs += [[call * steps + k, other * steps + k, *tokens, *keys] for k in range(steps)]
        return pairs

    def _add_kernels(
        self, found: dict[str, Any], run: ScenarioRun, scenario: str, column: str, count: Optional[int] = None
    ) -> None:
        """Each kind of kernel once, with the smallest batch, all scenarios and the largest difference."""
        self._page.add(column, run, found, "not invariant")
        for one in found["findings"]:
            if one["mixed"] and count is not None:
                continue
            key = (one["operator"], one["module"].rsplit(".", 1)[-1], one["beyond_rounding"])
            fresh = {**one, "from_batch": count, "places": 0, "scenarios": []}
            known = self._kernels.setdefault(key, fresh)
            known["places"] += 1
            known["from_batch"] = known["from_batch"] or count
            if scenario not in known["scenarios"]:
                known["scenarios"].append(scenario)
            if (one["largest_ulp"] or 0) > (known["largest_ulp"] or 0):
                known["largest_ulp"] = one["largest_ulp"]

    def _logits(self) -> list[dict[str, Any]]:
        alone = self._wanted["equal-1"]
        found = []
        for name, scenario in self._wanted.items():
            if name == "equal-1":
                continue
            # A prompt alone ends with the first call, each decoded token with one more.
            reference = _logits_of(self._runs["equal-1"], alone, len(scenario.decode))
            other = _logits_of(self._runs[name], scenario, len(scenario.spans()) - 1)
            found.append(_logits_difference(reference, other, name))
        return [one for one in found if one is not None]


def _key(place: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(place.get(name) for name in ("rank", "step", "call", "node"))


def _joined(comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of all, each place once, with the number of comparisons that found it; in order of execution."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for comparison in comparisons:
        for one in comparison["findings"]:
            found.setdefault((*_key(one), one["slot"]), {**one, "times": 0})["times"] += 1
    return sorted(found.values(), key=lambda one: (one["rank"], one["step"], one["index"]))


def _logits_of(run: ScenarioRun, scenario: Scenario, call: int) -> Any:
    """What the model returned for the row in a forward call: the values of its last token, or None."""
    import assay

    steps = run.steps_of_call(scenario)
    begin = run.first + call * steps
    found = [
        record
        for record in assay.open(run.path).records
        if _is_logits(record) and record.step is not None and begin <= record.step < begin + steps
    ]
    if not found:
        return None
    last = max(found, key=lambda record: (record.step, record.order))
    values, rows = last.numpy(), len(scenario.rows)
    if last.node and not scenario.padding:
        values = values.reshape(rows, -1, values.shape[-1])  # llama.cpp has all tokens one after the other
    if values.ndim == 0 or values.shape[0] != rows:
        return None
    behind = scenario._padding_of(scenario.row)[1]
    return values[scenario.row].reshape(-1, values.shape[-1])[-1 - behind]


def _is_logits(record: Any) -> bool:
    """What the outermost module returns, or llama.cpp's last node."""
    if record.role != "output" or not record.file:
        return False
    return (record.node == "" and record.slot in ("", "0", "logits")) or record.node.startswith("result_output::")


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

    takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def run(scenario: Scenario) -> Any:
        before = torch.get_num_threads()
        cache: Any = None
        result: Any = None
        try:
            if scenario.threads:
                torch.set_num_threads(scenario.threads)
            with torch.no_grad():
                for tokens, mask, positions in zip(scenario.calls(), scenario.masks(), scenario.positions()):
                    # As `generate` does: only where there is padding somebody has to be told.
                    padded = {"attention_mask": torch.tensor(mask)} if scenario.padding else {}
                    if padded and takes_positions:
                        padded["position_ids"] = torch.tensor(positions)
                    ids = torch.tensor(tokens)
                    result = model(input_ids=ids, past_key_values=cache, use_cache=True, **padded)
                    cache = result.past_key_values
        finally:
            torch.set_num_threads(before)
        return result.logits

    return run


def llama_cpp(path: Union[str, Path], *, unified: bool = True) -> Callable[[Scenario], None]:
    """The program that drives llama.cpp: each row is a slot of one batch, each forward call one ``llama_decode``.

    It needs the package ``llama-cpp-python``. Rows of other lengths need no padding there: what a scenario pads is left
    out of the batch.

    Args:
        path: of the GGUF file.
        unified: the slots share one cache; otherwise each has its own.

    Raises:
        assay.FormatError: the engine cannot load the file.
    """
    engine: Any = importlib.import_module("llama_cpp")
    quiet = engine.llama_log_callback(lambda *_: None)
    engine.llama_log_set(quiet, None)
    engine.llama_backend_init()
    model = engine.llama_model_load_from_file(str(path).encode(), engine.llama_model_default_params())
    if not model:
        raise FormatError("Invalid", "llama.cpp cannot load it", str(path))

    _engine_logs.append(quiet)

    def run(scenario: Scenario) -> None:
        _llama_decode(engine, model, scenario, unified)

    return run


def _llama_decode(engine: Any, model: Any, scenario: Scenario, unified: bool) -> None:
    """The forward calls of a scenario, in a context of its own."""
    rows, length = len(scenario.rows), scenario.spans()[-1][1]
    params = engine.llama_context_default_params()
    params.n_seq_max, params.kv_unified = rows, unified
    params.n_ctx = params.n_batch = params.n_ubatch = _LLAMA_CELLS * max(1, -(-length // _LLAMA_CELLS)) * rows
    if scenario.threads:
        params.n_threads = params.n_threads_batch = scenario.threads
    context = engine.llama_init_from_model(model, params)
    if not context:
        raise FormatError("Invalid", f"llama.cpp makes no context of {rows} slots")
    try:
        for (first, last), tokens, masks, positions in zip(
            scenario.spans(), scenario.calls(), scenario.masks(), scenario.positions()
        ):
            slots = [
                (tokens[row][at], positions[row][at], row)
                for row in range(rows)
                for at in range(last - first)
                if masks[row][first + at]
            ]
            _llama_call(engine, context, slots)
    finally:
        engine.llama_free(context)


_engine_logs: list[Any] = []  # that an engine calls as long as the program lives
_LLAMA_CELLS = 256  # of the cache; the engine rounds up to it, so that contexts of one size have graphs of one shape


def _llama_call(engine: Any, context: Any, slots: Sequence[tuple[int, int, int]]) -> None:
    """One batch of (token, position, slot); the logits of all tokens are computed."""
    batch = engine.llama_batch_init(len(slots), 0, 1)
    try:
        batch.n_tokens = len(slots)
        for at, (token, position, slot) in enumerate(slots):
            batch.token[at], batch.pos[at] = token, position
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, slot
            batch.logits[at] = True
        if (status := engine.llama_decode(context, batch)) != 0:
            raise FormatError("Invalid", f"llama_decode returned {status}")
    finally:
        engine.llama_batch_free(batch)


def _checkpoint(path: str, dtype: str) -> Callable[[Scenario], Any]:
    import torch
    import transformers

    # from_pretrained() gives it in eval mode.
    return hugging_face(transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the scenarios of ``ASSAY_SCENARIOS``, or that of ``ASSAY_SCENARIO``, with Hugging Face or llama.cpp."""
    parser = argparse.ArgumentParser(prog="python -m assay.invariance", description=main.__doc__)
    parser.add_argument("model", help="folder of a checkpoint of Hugging Face, or a GGUF file for llama.cpp")
    parser.add_argument("--dtype", default="float32", help="of Hugging Face's (default: %(default)s)")
    options = parser.parse_args(arguments)
    wanted = load_scenarios()
    run = llama_cpp(options.model) if options.model.endswith(".gguf") else _checkpoint(options.model, options.dtype)
    for scenario in wanted:
        run(scenario)
    return 0


class _Callable(types.ModuleType):
    """The module is its main function, too: ``assay.invariance(run)``."""

    def __call__(self, *arguments: Any, **options: Any) -> Invariance:
        return check(*arguments, **options)


sys.modules[__name__].__class__ = _Callable

if __name__ == "__main__":
    sys.exit(main())
