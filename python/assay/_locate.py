# SPDX-License-Identifier: Apache-2.0
"""The first wrong operator of a run. The work is native; this file only gives it names."""

from __future__ import annotations

import copy
import importlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from . import _html
from ._pairs import PathLike, TokenMap, json_text, token_pairs
from ._parallel import Parallel, sizes_text

# Native, without a stub: this file has its types.
_opcheck: Any = importlib.import_module("assay._opcheck")

__all__ = ["Finding", "Verdict", "locate"]


class Finding:
    """One place that a verdict names. Plain data; a number that is not known is None."""

    def __init__(self, fields: dict[str, Any]):
        self._fields = fields

    @property
    def module(self) -> str:
        """Path of the module, ``""`` for the model itself."""
        return str(self._fields["module"])

    @property
    def also(self) -> Optional[str]:
        """A second module it may be, when what was captured cannot tell the two apart."""
        return self._optional_text("also")

    @property
    def module_type(self) -> Optional[str]:
        """Class of the module, where the run knows it."""
        return self._optional_text("module_type")

    @property
    def source(self) -> Optional[str]:
        """File and line of the module's ``forward``, ``"transformers/models/llama/modeling_llama.py:61"``; None where
        the run does not know it."""
        return self._optional_text("source")

    @property
    def op_type(self) -> Optional[str]:
        """The operator: ``"aten.mm.default"``, or a module class below operator level."""
        return self._optional_text("op_type")

    @property
    def slot(self) -> Optional[str]:
        """The tensor, parameter or argument that is wrong: ``"weight"``, ``"eps"``."""
        return self._optional_text("slot")

    @property
    def step(self) -> int:
        """Generation step, from 0."""
        return int(self._fields["step"])

    @property
    def rank(self) -> int:
        """Rank of the process."""
        return int(self._fields["rank"])

    @property
    def kind(self) -> str:
        """``"own_error"``, ``"weight"``, ``"attribute"``, ``"gap"`` ... ; docs/localisation.md lists them."""
        return str(self._fields["verdict"])

    @property
    def ratio(self) -> Optional[float]:
        """How many times what rounding explains."""
        value = self._fields["ratio"]
        return None if value is None else float(value)

    @property
    def confidence(self) -> str:
        """``"high"``, ``"medium"`` or ``"low"``."""
        return str(self._fields["confidence"])

    @property
    def hypothesis(self) -> Optional[str]:
        """What explains the difference, where something does: ``"a constant factor 1.03"``."""
        return self._optional_text("hypothesis")

    def to_dict(self) -> dict[str, Any]:
        """Every field, by the keys of ``assay locate --json``."""
        return copy.deepcopy(self._fields)

    def _optional_text(self, key: str) -> Optional[str]:
        value = self._fields[key]
        return None if value is None else str(value)

    def __str__(self) -> str:
        return str(self._fields["text"])

    def __repr__(self) -> str:
        return f"<assay.Finding {self}>"


def _place_of(finding: Finding) -> list[tuple[str, Any]]:
    return [
        ("module", _html.code(finding.module or "(model)")),
        ("type", _html.code(finding.module_type)),
        ("code", _html.code(finding.source)),
        ("operator", _html.code(finding.op_type)),
        ("tensor", _html.code(finding.slot)),
        ("step, rank", f"{finding.step}, {finding.rank}"),
        ("times what rounding explains", finding.ratio),
        ("explained by", _html.prose(finding.hypothesis)),
    ]


class Verdict:
    """What `locate` found. Plain data: it holds no file open."""

    def __init__(self, fields: dict[str, Any], text: str):
        self._fields = fields
        self._text = text

    @property
    def outcome(self) -> str:
        """``"first_wrong"`` (``"wrong"`` without an order of execution), ``"clean"`` or ``"cannot_judge"``."""
        return str(self._fields["outcome"])

    @property
    def sentence(self) -> str:
        """The verdict for a person."""
        return str(self._fields["sentence"])

    @property
    def first_bad(self) -> Optional[Finding]:
        """The first wrong operator in the run under test's execution order; None when none is named."""
        first = self._fields["first_bad"]
        return None if first is None else Finding(first)

    @property
    def candidates(self) -> list[Finding]:
        """Everything that is wrong, in the run under test's execution order; ``first_bad`` is the first of them."""
        return [Finding(fields) for fields in self._fields["candidates"]]

    @property
    def coverage(self) -> dict[str, Any]:
        """``my_ops``, ``matched``, ``judged``, ``judgeable``, ``weights``, ``weights_compared``,
        ``weights_by_function``; ``unjudged``."""
        return dict(self._fields["coverage"])

    @property
    def confidence(self) -> str:
        """``"high"``, ``"medium"`` or ``"low"``; of ``first_bad``, or of ``clean``."""
        return str(self._fields["confidence"])

    @property
    def next(self) -> str:
        """The one command that goes on: a line for a shell; words in capitals are yours to fill in."""
        return str(self._fields["next"])

    @property
    def tokens(self) -> Optional[dict[str, Any]]:
        """What the runs choose: positions compared, other choices, near ties, KL; None where no logits were compared.

        The keys are those of ``tokens`` of ``assay locate --json``.
        """
        tokens: Optional[dict[str, Any]] = self._fields["tokens"]
        return tokens

    @property
    def notes(self) -> list[str]:
        """What else was found out, one sentence each: of the runs (what was renamed, is missing, or of other models or
        processes), then of the verdict."""
        return [str(note) for note in self._fields["notes"]]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as ``assay locate --json`` prints it, but for ``command`` and ``exit_status``."""
        return copy.deepcopy(self._fields)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<assay.Verdict {self.sentence}>"

    def _repr_html_(self) -> str:
        """For notebooks: the sentence, where the first wrong operator is, what follows from it, what to do next."""
        coverage = self.coverage
        judged = f"{coverage['judged']} of {coverage['judgeable']}" if coverage["judgeable"] else None
        first = self.first_bad
        place = [] if first is None else _place_of(first)
        known = [("confidence", self.confidence), *place, ("judged", judged), ("next", _html.code(self.next))]
        chain = [(_html.code(link["my"] or "(model)"), link["step"], link["e_out"]) for link in self._fields["chain"]]
        others = [str(finding) for finding in self.candidates if first is None or finding._fields != first._fields]
        return _html.fragment(
            "Verdict",
            self.sentence,
            _html.facts(known),
            _html.sentences("also wrong:" if first else "wrong:", others),
            _html.table("behind it", ("output of", "step", "rel L2"), chain[: _html.MOST_ROWS], len(chain)),
            _html.sentences("notes:", self.notes),
            tone={"clean": "good", "cannot_judge": "open"}.get(self.outcome, "bad"),
        )


def locate(
    golden: PathLike,
    mine: PathLike,
    *,
    own_error: bool = True,
    floor_runs: Iterable[tuple[PathLike, PathLike]] = (),
    floor: Optional[PathLike] = None,
    save_floor: Optional[PathLike] = None,
    golden_weights: Optional[PathLike] = None,
    slice: str = "",
    map: Union[PathLike, Sequence[Mapping[str, str]], None] = None,
    token_map: TokenMap = (),
    ranks: Sequence[int] = (),
    parallel: Parallel = None,
    jobs: int = 0,
    max_memory: int = 0,
) -> Verdict:
    """Names the first operator of `mine` that is wrong, or says that all is rounding, or why it cannot judge.

    Args:
        golden: the reference run; best captured with ``level="operator"``, which on a CPU is enough to judge a run
            of which only module outputs were captured.
        mine: the run under test.
        own_error: recompute every captured operator in fp64 from its own inputs.
        floor_runs: pairs (golden, mine) of healthy runs of other prompts; noise is measured on them where the
            golden run's program is not known. Five or more.
        floor: a profile kept by `save_floor`, instead of `floor_runs`.
        save_floor: keep what was measured in this file.
        golden_weights: a checkpoint with the weights of a golden fingerprint.
        slice: only what this output depends on: a module, ``"module:slot"`` or ``"step 3"``.
        map: modules that correspond under other names, ``[{"golden": ..., "my": ...}]`` or a JSON file with that, as
            of `assay.compare`; the modules below go along. Entries with a slice or a reduction count only there.
        token_map: pairs (step of golden, step of mine); by default found by their tokens and positions.
        ranks: judge only these.
        parallel: sizes of the parallel groups of mine's job, as `assay.compare` takes them.
        jobs: threads; 0 means one a core.
        max_memory: bytes of working tensors; 0 means 2 GiB.

    Returns:
        The verdict. The GIL is released meanwhile.

    Raises:
        assay.errors.Error: a path is no run, the slice names nothing, a profile is malformed.

    Example:
        >>> verdict = assay.locate("golden", "mine")  # doctest: +SKIP
        >>> verdict.first_bad.module  # doctest: +SKIP
        'model.layers.5.input_layernorm'
    """
    if floor is not None and floor_runs:
        raise ValueError("floor and floor_runs exclude each other")
    runs = [(os.fspath(first), os.fspath(second)) for first, second in floor_runs]
    if save_floor is not None and not runs:
        raise ValueError("save_floor keeps what floor_runs measure, and there are none")
    steps = token_pairs(token_map)
    groups = sizes_text(parallel)
    document, text = _opcheck._locate(
        os.fspath(golden),
        os.fspath(mine),
        own_error,
        runs,
        "" if floor is None else os.fspath(floor),
        "" if save_floor is None else os.fspath(save_floor),
        "" if golden_weights is None else os.fspath(golden_weights),
        slice,
        json_text(map),
        steps,
        list(ranks),
        groups,
        jobs,
        max_memory,
        _asked(map, steps, ranks, groups),
    )
    return Verdict(json.loads(document), text)


def _asked(
    map: Union[PathLike, Sequence[Mapping[str, str]], None],
    steps: Sequence[tuple[int, int]],
    ranks: Sequence[int],
    groups: str,
) -> str:
    """What corresponds, as options of ``assay locate`` with a blank before each; a `map` only where it is a file."""
    words = [
        *(("--token-map", ",".join(f"{golden}:{mine}" for golden, mine in steps)) if steps else ()),
        *(("--ranks", ",".join(str(rank) for rank in ranks)) if ranks else ()),
        *(("--parallel", groups) if groups else ()),
        *(("--map", os.fspath(map)) if isinstance(map, (str, os.PathLike)) else ()),
    ]
    return "".join(f" {shlex.quote(word)}" for word in words)
