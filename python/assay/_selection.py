# SPDX-License-Identifier: Apache-2.0
"""Tensors of a run by name: one as an array, several as something that can be indexed further."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

if TYPE_CHECKING:
    from assay._run import Record

__all__ = ["Selection", "choose", "no_such_name"]

_AXES = ("rank", "step", "call")  # an integer chooses along the first of these that has several
_MOST_SHOWN = 8
_MOST_COMPARED = 5000  # names that a wrong one is held against


class Selection:
    """Several tensors of one name, in execution order: what ``run[name]`` is when it is not one array.

    An integer chooses a number of the first of rank, step and call that there are several of; text chooses a slot.
    What one tensor is left of is that tensor's array, anything else a smaller selection. The numbers are those of the
    records: ``[3]`` is step 3, not the fourth.

    Attributes:
        name: as it was asked for.
        records: the tensors' records.

    Example:
        >>> run = assay.open("golden")  # doctest: +SKIP
        >>> run["model.norm"]  # doctest: +SKIP
        <Selection 'model.norm': 2 tensors; step 0, 1: choose with [step]>
        >>> run["model.norm"][1]  # doctest: +SKIP
        array([[ ... ]], dtype=float32)
    """

    def __init__(self, name: str, records: Sequence[Record]):
        self.name = name
        self.records = tuple(records)

    def __getitem__(self, key: Union[int, str]) -> Union[np.ndarray, Selection]:
        if isinstance(key, str):
            return self.at(slot=key)
        axis = next((axis for axis in _AXES if len(self._values(axis)) > 1), None)
        if axis is None:
            raise KeyError(f"{self.name!r} has one rank, step and call; {self._ways()}")
        return self._narrowed({axis: key})

    def at(
        self,
        *,
        rank: Optional[int] = None,
        step: Optional[int] = None,
        call: Optional[int] = None,
        slot: Optional[str] = None,
    ) -> Union[np.ndarray, Selection]:
        """Chooses along several at once, in any order.

        Args:
            rank: rank of the process.
            step: token id.
            call: which call of the node within the step, from 0.
            slot: path inside the arguments or the result: ``"0"``, ``"kwargs.mask"``, ``""`` of a single output.

        Returns:
            The array of the only tensor that is left, otherwise a smaller selection.

        Raises:
            KeyError: there is none such; it says what there is.
        """
        wanted = {"rank": rank, "step": step, "call": call, "slot": slot}
        return self._narrowed({axis: value for axis, value in wanted.items() if value is not None})

    def _narrowed(self, wanted: dict[str, Any]) -> Union[np.ndarray, Selection]:
        records = self.records
        for axis, value in wanted.items():
            kept = tuple(record for record in records if getattr(record, axis) == value)
            if not kept:
                raise KeyError(f"{self.name!r} has no {axis} {value!r}, but {_list(_distinct(records, axis))}")
            records = kept
        return choose(self.name, records)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def _values(self, axis: str) -> list[Any]:
        return _distinct(self.records, axis)

    def _ways(self) -> str:
        axes = [axis for axis in _AXES if len(self._values(axis)) > 1]
        slots = self._values("slot")
        parts = [f"{axis} {_list(self._values(axis))}" for axis in axes]
        choices = [f"[{axis}]" for axis in axes[:1]]
        if len(slots) > 1:
            parts.append(f"slot {_list(slots)}")
            choices.append("[slot]")
        if not choices:
            return ".records has all"
        return f"{'; '.join(parts)}: choose with {' or '.join(choices)}"

    def __repr__(self) -> str:
        return f"<Selection {self.name!r}: {len(self)} tensors; {self._ways()}>"


def choose(name: str, records: Sequence[Record]) -> Union[np.ndarray, Selection]:
    """Returns the array of a single record, of several records a selection."""
    return records[0].numpy() if len(records) == 1 else Selection(name, records)


def _distinct(records: Iterable[Record], axis: str) -> list[Any]:
    return list(dict.fromkeys(getattr(record, axis) for record in records))


def _list(values: Sequence[Any]) -> str:
    shown = ", ".join(repr(value) for value in values[:_MOST_SHOWN])
    return shown + (f" ... ({len(values)})" if len(values) > _MOST_SHOWN else "")


def no_such_name(name: str, path: str, names: Sequence[str]) -> KeyError:
    """Returns the error about a name that a run does not have, with the nearest of those that it has."""
    known = [other for other in dict.fromkeys(names) if other]
    near = [other for other in known if name and other.endswith(f".{name}")][:3]
    near = near or difflib.get_close_matches(name, known[:_MOST_COMPARED], n=3, cutoff=0.5)
    nearest = f"; nearest: {', '.join(map(repr, near))}" if near else ""
    return KeyError(f"no node or tensor {name!r} in {path}{nearest}")
