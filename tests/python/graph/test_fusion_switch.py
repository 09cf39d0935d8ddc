# SPDX-License-Identifier: Apache-2.0
"""The fusion switch file, and every way in which one can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.torch.graph._fusion_switch import FusionSwitch, FusionSwitchError


def load(folder: Path, text: str) -> FusionSwitch:
    path = folder / "switch.json"
    path.write_text(text)
    return FusionSwitch.load(str(path))


def test_both_groups_off_is_the_unfused_run(tmp_path: Path) -> None:
    switch = load(tmp_path, '{"Switch": {"GraphFusion": {"ALL": "off", "APass": "on"}, "UBFusion": {"ALL": "off"}}}')
    assert switch.turns_fusion_off
    assert switch.passes_on("GraphFusion") == ["APass"]
    assert switch.is_off("UBFusion")


@pytest.mark.parametrize(
    "text",
    [
        '{"Switch": {}}',
        '{"Switch": {"GraphFusion": {"ALL": "off"}}}',
        '{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "on"}}}',
        '{"Switch": {"GraphFusion": {"APass": "off"}, "UBFusion": {"BPass": "off"}}}',
        '\ufeff{"Switch": {"GraphFusion": {"ALL": "on"}}, "comment": 1}',
    ],
)
def test_anything_less_leaves_fusion_on(tmp_path: Path, text: str) -> None:
    assert not load(tmp_path, text).turns_fusion_off


def test_the_older_form_names_single_passes(tmp_path: Path) -> None:
    switch = load(tmp_path, "APass:off\n\n BPass : on \n")
    assert switch.passes_off("GraphFusion") == ["APass"]
    assert switch.passes_on("GraphFusion") == ["BPass"]
    assert not switch.turns_fusion_off


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["line 1, column 1: no JSON, expecting value"]),
        ('{"Switch": {"GraphFusion" {}}}', ["line 1, column 27: no JSON, expecting ':' delimiter"]),
        ("[]", ["the file holds a list where an object is expected"]),
        ('{"switch": {}}', ["Switch: it is missing (switch is there)"]),
        ('{"Switch": null}', ["Switch: it is null"]),
        ('{"Switch": {"GraphFusoin": {}}}', ["Switch.GraphFusoin: no group of this name, GraphFusion is meant"]),
        (
            '{"Switch": {"GraphFusion": {"ALL": false, "A": "On"}, "UBFusion": "off"}}',
            [
                'Switch.GraphFusion.ALL: false is neither "on" nor "off"',
                "Switch.GraphFusion.A:",
                "Switch.UBFusion: it is",
            ],
        ),
        ('{"Switch": {"UBFusion": {"ALL": "on", "ALL": "off"}}}', ["Switch.UBFusion.ALL: it stands there twice"]),
        ("[" * 100000, ["nested too deep"]),
    ],
)
def test_every_mistake_is_named_with_its_place(tmp_path: Path, text: str, problems: list[str]) -> None:
    with pytest.raises(FusionSwitchError, match=r"switch\.json: ") as caught:
        load(tmp_path, text)
    assert len(caught.value.problems) == len(problems)
    for found, expected in zip(caught.value.problems, problems):
        assert expected in found
    assert '"ALL": "off"' in str(caught.value)  # how it is done


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "switch.json"
    path.write_bytes(b"{\xff")
    with pytest.raises(FusionSwitchError, match="byte 1"):
        FusionSwitch.load(str(path))
    with pytest.raises(OSError):
        FusionSwitch.load(str(tmp_path / "absent.json"))
