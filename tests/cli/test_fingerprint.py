# SPDX-License-Identifier: Apache-2.0
"""`assay fingerprint`: what is in the file, read by a reader of our own; what it tells as the golden side."""

from __future__ import annotations

import base64
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from assay_command import run
from operator_runs import write_run
from page_file import PageFile
from safetensors.torch import save_file


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    """The reference: float32, with operators."""
    return write_run(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


@pytest.fixture(scope="module")
def fingerprint(golden) -> Path:
    return make(golden, golden.parent / "golden.json.gz")


@pytest.fixture(scope="module")
def checkpoint(golden) -> Path:
    """Golden's weights under other names."""
    tensors = {f"other.{name}": tensor for name, tensor in weights_of(golden).items()}
    save_file(tensors, golden.parent / "model.safetensors")
    return golden.parent / "model.safetensors"


def make(golden: Path, output: Path, *options) -> Path:
    done = run("fingerprint", golden, "-o", output, *options)
    assert done.returncode == 0, done.stderr
    return output


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    payload = (folder / "rank0" / "step-000000.safetensors").read_bytes()
    weights = {}
    for line in (folder / "rank0" / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record.get("role") == "weight":
            content = payload[record["offset"] : record["offset"] + record["bytes"]]
            values = torch.frombuffer(bytearray(content), dtype=torch.float32).reshape(record["shape"])
            weights[f"{record['node']}.{record['slot']}"] = values
    return weights


def locate(golden: Path, mine: Path, *options) -> tuple[int, dict]:
    done = run("locate", golden, mine, "--json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


# ---- the file, by docs/formats/fingerprint.md --------------------------------------------------------


class Reader:
    """Reads the file with gzip, json and numpy alone. Yields the records as dictionaries."""

    def __init__(self, path: Path):
        self.document = json.loads(gzip.decompress(path.read_bytes()))
        assert (self.document["format"], self.document["version"]) == ("assay-fingerprint", 1)
        self.values: list[dict] = []
        self.operators: list[dict] = []
        self.records = [record for group in self.document["groups"] for record in self.group(group)]
        self.give_contents()

    def text(self, number: int) -> str:
        return self.document["texts"][number]

    def group(self, group: dict) -> list[dict]:
        columns = {name: iter(self.document["lists"][n]) for name, n in group["columns"].items()}
        count = len(self.document["lists"][group["columns"]["of"]])

        def take(name):
            return next(columns[name])

        operators, arguments = [], []
        place = 0
        for _ in range(len(self.document["lists"][group["columns"].get("op_type", -1)]) if "op_type" in columns else 0):
            kind, module, number = self.text(take("op_type")), self.text(take("op_module")), take("op_number")
            place += take("op_place")
            known = take("op_args")
            if known == 0:
                arguments.append(self.text(take("new_args")))
            operator = {
                "node": f"{module}::{kind}.{number}" if number >= 0 else self.text(-1 - number),
                "type": kind,
                "call": take("op_call"),
                "args": arguments[known - 1],
                "place": place,
                "step": group["step"],
            }
            take("op_writes")
            operators.append(operator)
        self.operators += operators
        here: list[dict] = []
        forms: list[list] = []
        records = []
        for row in range(count):
            behind = sum(operator["place"] <= row for operator in operators)
            of = take("of")
            record = {"step": group["step"], "role": ("input", "output", "weight", "buffer")[take("role")]}
            record["slot"] = self.text(take("slot"))
            record["state"] = take("state")
            if record["state"] != 1:
                code = take("value")
                if code == 0:
                    known = take("known")
                    here.append(self.values[known - 1] if known else self.new_value(take, forms))
                record["value"] = here[-1] if code == 0 else here[len(here) - code - (0)]
                record["from"] = None
            if of == 0:
                record |= {"node": self.text(take("node")), "type": self.text(take("type")), "call": take("call")}
            else:
                operator = operators[behind - of]
                record |= {key: operator[key] for key in ("node", "type", "call")}
            if record["state"] != 0:
                record["text"] = self.text(take("text"))
            if record["state"] != 1:
                record["from"] = take("from")
            records.append(record)
        assert all(next(column, None) is None for column in columns.values())
        return records

    def new_value(self, take, forms) -> dict:
        known = take("form")
        if known == 0:
            forms.append(self.document["forms"][take("new_form")])
        dtype, shape, _ = forms[known - 1]
        value = {"dtype": dtype, "shape": shape}
        value |= {name: take(name) for name in ("id", "storage", "offset", "writes")}
        value |= {name: self.text(take(name)) for name in ("leaf", "memory")}
        value["has"] = take("has")
        if value["has"] & 32:
            value["rows"] = take("rows")
        if value["has"] & 3:
            value |= {name: take(name) for name in ("count", "nan", "positive_inf", "negative_inf")}
        self.values.append(value)
        return value

    def give_contents(self) -> None:
        digests = base64.b64decode(self.document["digests"])
        kept = iter(self.document["kept"])
        for i, value in enumerate(v for v in self.values if v["has"] & 8):
            high, low = np.frombuffer(digests, "<u8")[2 * i : 2 * i + 2]
            value["digest"] = f"{high:016x}{low:016x}"
        for value in self.values:
            if value["has"] & 16:
                value["bytes"] = base64.b64decode(next(kept))
        self.give_rounded([v for v in self.values if v["has"] & 1])
        self.give_exact([v for v in self.values if v["has"] & 2])

    def give_rounded(self, values: list[dict]) -> None:
        columns = {k: base64.b64decode(v) for k, v in self.document["statistics"].items()}
        for name in ("l2", "min", "max"):
            planes = np.frombuffer(columns[name], np.uint8).reshape(3, -1).astype(np.uint32)
            codes = planes[0] << 24 | planes[1] << 16 | planes[2] << 8
            for value, number in zip(values, codes.view(np.float32), strict=True):
                value[name] = float(number)
        planes = np.frombuffer(columns["mean"], np.uint8).reshape(2, -1).astype(np.uint16)
        for value, code in zip(values, (planes[0] << 8 | planes[1]).view(np.int16), strict=True):
            value["mean"] = float(code) / 32767 * value["l2"] / math.sqrt(value["count"])
        with_sketch = [value for value in values if value["has"] & 4]
        packed = np.frombuffer(columns["sketch"], np.uint8).reshape(-1, 8, 3).astype(int)
        first, second = packed[..., 0] << 4 | packed[..., 1] >> 4, (packed[..., 1] & 15) << 8 | packed[..., 2]
        sums = np.stack([first, second], -1).reshape(-1, 16) - 2048
        for value, scale, row in zip(with_sketch, columns["scale"], sums, strict=True):
            value["sketch"] = row / 2047 * scale / 32 * value["l2"]

    def give_exact(self, values: list[dict]) -> None:
        columns = {k: base64.b64decode(v) for k, v in self.document["exact_statistics"].items()}
        for name in ("l2", "min", "max", "mean"):
            for value, number in zip(values, np.frombuffer(columns[name], np.float64), strict=True):
                value[name] = float(number)


def test_the_file_holds_the_run(golden, fingerprint):
    """Every record and operator of the run, in order, and of each tensor what the document says."""
    read = Reader(fingerprint)
    lines = [json.loads(line) for line in (golden / "rank0" / "records.jsonl").read_text().splitlines()]
    captured = [line for line in lines if line.get("kind") != "operator"]
    assert len(read.records) == len(captured)
    for record, line in zip(read.records, captured, strict=True):
        assert [record[k] for k in ("step", "node", "type", "role", "slot")] == [
            line[k] for k in ("step", "node", "type", "role", "slot")
        ]
        assert record["value"]["dtype"] == line["dtype"] and record["value"]["shape"] == line["shape"]
        if "l2" in record["value"]:
            assert record["value"]["l2"] == pytest.approx(line["stats"]["l2"], rel=2**-16)
            assert record["value"]["max"] == pytest.approx(line["stats"]["max"], rel=2**-16)
            rms = line["stats"]["l2"] / math.sqrt(line["stats"]["count"])
            assert abs(record["value"]["mean"] - line["stats"]["mean"]) <= (1 / 65534 + 2**-16) * rms
    operators = [line for line in lines if line.get("kind") == "operator"]
    assert [one["node"] for one in read.operators] == [line["node"] for line in operators]
    assert [json.loads(one["args"]) for one in read.operators] == [line["args"] for line in operators]


def test_digests_are_those_of_the_weights(golden, fingerprint):
    import assay

    read = Reader(fingerprint)
    weights = weights_of(golden)
    found = {value["leaf"]: value["digest"] for value in read.values if value["leaf"]}
    assert found == {name: assay.digest(tensor.numpy()) for name, tensor in weights.items()}
    assert all(value["has"] & 2 for value in read.values if value["leaf"])  # captured: exact statistics


def test_the_same_run_gives_the_same_bytes(golden, fingerprint, tmp_path):
    again = make(golden, tmp_path / "again.json.gz")
    assert again.read_bytes() == fingerprint.read_bytes()
    assert again.read_bytes()[4:8] == b"\0\0\0\0"  # no time
    assert str(golden.parent) not in gzip.decompress(again.read_bytes()).decode()


# ---- what it tells ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_with_its_weights_it_judges_like_the_run(golden, fingerprint, checkpoint, tmp_path, level, dtype):
    """Healthy is clean, with the same coverage; mine in golden's type lends the weights itself."""
    mine = write_run(tmp_path / "mine", dtype=dtype, level=level)
    options = [] if dtype == torch.float32 else ["--golden-weights", checkpoint]
    status, verdict = locate(fingerprint, mine, *options)
    full_status, full = locate(golden, mine)
    assert (status, verdict["outcome"]) == (full_status, full["outcome"]) == (0, "clean"), verdict["sentence"]
    assert verdict["coverage"] == full["coverage"]


FAULTS = {
    "weight": {"gains": {1: 1.03}},
    "attribute": {"scales": {1: 0.51}},
    "kernel": {"kernels": {"blocks.1.proj": lambda t: t * 1.03}},
    "wiring": {"stale": 1},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("level", ["operator", "module"])
def test_with_its_weights_it_names_what_the_run_names(golden, fingerprint, checkpoint, tmp_path, fault, level):
    mine = write_run(tmp_path / "mine", level=level, **FAULTS[fault])
    status, verdict = locate(fingerprint, mine, "--golden-weights", checkpoint)
    full_status, full = locate(golden, mine)
    assert (status, verdict["first_bad"]["module"]) == (full_status, full["first_bad"]["module"])
    assert status == 1 and verdict["first_bad"]["module"].startswith("blocks.1")


def test_without_its_weights_it_is_never_clean(fingerprint, tmp_path):
    for level in ("operator", "module"):
        mine = write_run(tmp_path / level, level=level)  # bfloat16: no digest is golden's
        status, verdict = locate(fingerprint, mine)
        assert status == 125, verdict["sentence"]
        assert verdict["next"] == f"assay locate {fingerprint} {mine} --golden-weights CHECKPOINT"


def test_without_its_weights_operators_are_still_judged(fingerprint, tmp_path):
    mine = write_run(tmp_path / "mine", kernels={"blocks.1.proj": lambda t: t * 1.03})
    status, verdict = locate(fingerprint, mine)
    assert status == 1 and verdict["first_bad"]["module"] == "blocks.1.proj"


def test_bit_equal_values_are_clean_without_a_program(tmp_path):
    golden = write_run(tmp_path / "golden", level="module", dtype=torch.float32)
    same = write_run(tmp_path / "same", level="module", dtype=torch.float32)
    path = make(golden, tmp_path / "golden.json.gz")
    status, verdict = locate(path, same, "--own-error", "off")
    assert status == 0 and "bit for bit" in verdict["sentence"], verdict["sentence"]


def test_floors_in_the_file_judge_statistics(tmp_path):
    """Healthy statistics are clean, a fault is named, and without the floors nothing can be said."""

    def write(name: str, **plan) -> Path:
        return write_run(tmp_path / name, level="module", **plan)

    golden = write("golden", dtype=torch.float32)
    pairs = [(write(f"g{seed}", dtype=torch.float32, seed=seed), write(f"m{seed}", seed=seed)) for seed in range(1, 7)]
    options = [word for g, m in pairs for word in ("--floor-run", f"{g}:{m}")]
    path = make(golden, tmp_path / "golden.json.gz", *options)
    plain = make(golden, tmp_path / "plain.json.gz")
    healthy = write("mine", statistics=True)
    faulty = write("faulty", statistics=True, kernels={"blocks.1.proj": lambda t: t * 1.03})
    # A module level run of this writer has a kernel's fault in its result.
    status, verdict = locate(path, healthy)
    assert (status, verdict["level"]) == (0, "S"), verdict["sentence"]
    status, verdict = locate(path, faulty)
    assert status == 1 and verdict["first_bad"]["module"].startswith("blocks.1"), verdict["sentence"]
    assert locate(plain, healthy)[0] == 125
    assert "judged by the floors in" in run("locate", path, healthy).stderr
    # Every other door says the same: Python, the page of both, and a page of statistics has rows.
    import assay

    verdict = assay.locate(path, healthy)
    assert verdict.outcome == "clean" and any(note.startswith("judged by the floors in") for note in verdict.notes)
    assay.compare(path, healthy).to_html(tmp_path / "compared.html")
    run("locate", path, healthy, "--html", tmp_path / "located.html")
    for name in ("compared.html", "located.html"):
        page = PageFile(tmp_path / name)
        assert page.content["verdict"]["outcome"] == "clean" and page.rows, name
    # Floors of values say nothing of a fingerprint, which has statistics.
    of_values = tmp_path / "values.json"
    run("locate", *pairs[0], *options, "--save-floor", of_values)
    with pytest.raises(assay.errors.Error, match="floors of values"):
        assay.fingerprint(golden, tmp_path / "none.json.gz", floor=of_values)


def test_other_inputs_cannot_be_judged(fingerprint, checkpoint, tmp_path):
    for name, plan in {"prompt": {"seed": 5}, "length": {"rows": 7}}.items():
        mine = write_run(tmp_path / name, **plan)
        status, verdict = locate(fingerprint, mine, "--golden-weights", checkpoint)
        assert status == 125, (name, verdict["sentence"])


# ---- the command ---------------------------------------------------------------------------------------


def test_the_summary_ends_with_the_next_command(golden, tmp_path):
    done = run("fingerprint", golden, "-o", tmp_path / "a b.json.gz")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{tmp_path}/a b.json.gz: ") and "10 operators" in lines[1]
    assert [line for line in lines if line.startswith("next: ")] == [
        f"next: assay gate '{tmp_path}/a b.json.gz' --mine 'python run.py'"
    ]
    assert lines[-1].startswith("next: ")


def test_a_limit_says_what_to_leave_out(golden, tmp_path):
    done = run("fingerprint", golden, "-o", tmp_path / "f.gz", "--most", "100")
    assert done.returncode == 2 and "with --without statistics it would have" in done.stderr
    assert not list(tmp_path.iterdir())
    whole = make(golden, tmp_path / "whole.gz").stat().st_size
    assert make(golden, tmp_path / "less.gz", "--without", "statistics").stat().st_size < whole


def test_weights_of_a_checkpoint_are_found_by_name(golden, tmp_path):
    """A run of statistics has no digests; its checkpoint has the weights."""
    bare = write_run(tmp_path / "bare", dtype=torch.float32, statistics=True, weights=False)
    save_file(weights_of(golden), tmp_path / "model.safetensors")
    path = make(bare, tmp_path / "f.gz", "--weights", tmp_path / "model.safetensors")
    with_digest = [value for value in Reader(path).values if value["has"] & 8]
    assert sorted(value["leaf"] for value in with_digest) == sorted(weights_of(golden))


@pytest.mark.parametrize("what", ["unfinished", "no run", "another layout"])
def test_what_is_no_whole_run_is_refused(golden, tmp_path, what):
    folder = tmp_path / "run"
    if what == "unfinished":
        write_run(folder, dtype=torch.float32)
        manifest = json.loads((folder / "manifest.json").read_text()) | {"complete": False}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    elif what == "another layout":
        folder.mkdir()
        np.save(folder / "a.npy", np.zeros(3))
    done = run("fingerprint", folder, "-o", tmp_path / "f.gz")
    assert done.returncode == 2 and len(done.stderr.splitlines()) <= 3, done.stderr
    assert not (tmp_path / "f.gz").exists()


def test_other_commands_take_it(golden, fingerprint, tmp_path):
    shown = run("show", fingerprint)
    assert shown.returncode == 0 and "fingerprint" in shown.stdout.splitlines()[0]
    assert run("verify", fingerprint).returncode == 0
    mine = write_run(tmp_path / "mine", dtype=torch.float32)
    assert run("compare", fingerprint, mine, "-o", tmp_path).returncode in (0, 125)
    done = run("locate", golden, mine, "--golden-weights", golden)
    assert done.returncode == 2 and "golden fingerprint" in done.stderr


def test_damaged_files_are_said_to_be(fingerprint, tmp_path):
    content = fingerprint.read_bytes()
    for name, changed in {"cut": content[:-20], "flipped": content[:100] + b"\0\0" + content[102:]}.items():
        path = tmp_path / name
        path.write_bytes(changed)
        done = run("show", path)
        assert done.returncode == 2 and done.stderr.startswith(f"error: {path}: "), done.stderr


def test_python_writes_the_same_file(golden, fingerprint, tmp_path):
    import assay

    made = assay.fingerprint(golden, tmp_path / "f.json.gz")
    assert (tmp_path / "f.json.gz").read_bytes() == fingerprint.read_bytes()
    assert (made.bytes, made.operators, made.steps) == (fingerprint.stat().st_size, 10, 1)
    assert assay.open(made.path).layout == "fingerprint"
