# SPDX-License-Identifier: Apache-2.0
"""`python -m assay.twin make|check|run`: what `assay twin` runs, and the program that a twin is golden for.

python -m assay.twin run tiny          # all prompts, transformers, float32, on the CPU
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay import twin

OK, WRONG, USAGE, OUR_FAULT, INTERRUPTED = 0, 1, 2, 3, 130
NEEDED = ("torch", "transformers", "safetensors")


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    as_json = bool(getattr(options, "json", False))
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return _refuse(f"{' and '.join(missing)} not installed; pip install 'assay-llm[twin]'", as_json)
    signal.signal(signal.SIGTERM, _stop)
    try:
        status: int = options.act(options)
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ValueError, OSError) as why:
        return _refuse(" ".join(str(why).split()), as_json)
    except Exception as why:
        return _refuse(f"a fault of ours: {type(why).__name__}: {' '.join(str(why).split())}", as_json, OUR_FAULT)


def _stop(*_: object) -> None:
    """SIGTERM ends the program as an exception does: what was begun is removed."""
    sys.exit(128 + signal.SIGTERM)


def _refuse(sentence: str, as_json: bool, status: int = USAGE) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    following = "assay help twin"
    if as_json:
        _answer(True, "error", status, sentence, following, [], {})
    else:
        print(f"next: {following}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m assay.twin", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    make = commands.add_parser("make", help="write a twin")
    make.add_argument("source", type=Path, help="config.json, a folder with one, or a GGUF file")
    make.add_argument("-o", "--output", type=Path, required=True, help="the folder to write")
    make.add_argument("--layers", type=int, default=4)
    make.add_argument("--width", type=int, default=128)
    make.add_argument("--seed", type=int, default=0)
    make.add_argument("--same-size", action="store_true")
    make.add_argument("--no-float16-limit", dest="float16_limit", action="store_false")
    make.add_argument("--gguf-type", choices=["f32", "f16", "q8_0", "none"], default="f32")
    make.add_argument("--json", action="store_true")
    make.set_defaults(act=_make)

    check = commands.add_parser("check", help="load a twin, run it, and hold it against its description")
    check.add_argument("folder", type=Path)
    check.add_argument("--json", action="store_true")
    check.set_defaults(act=_check)

    run = commands.add_parser("run", help="run all prompts through the twin")
    run.add_argument("folder", type=Path, nargs="?", default=os.environ.get("ASSAY_TWIN"))
    run.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    run.add_argument("--attention", choices=["eager", "sdpa"])
    run.set_defaults(act=_run)
    return parser


def _make(options: argparse.Namespace) -> int:
    from assay.twin import making

    kind = None if options.gguf_type == "none" else options.gguf_type
    sizes = {name: getattr(options, name) for name in ("layers", "width", "seed", "same_size", "float16_limit")}
    values = making.make(making.Request(options.source, options.output, gguf_type=kind, **sizes))
    sentence = (
        f"{options.output}: {values['source']['architecture']}, {values['layers']} layers of width {values['width']}, "
        f"{values['parameters'] / 1e6:.2f} million parameters, seed {values['seed']}"
    )
    lines = ["prompts: " + ", ".join(prompt["name"] for prompt in values["prompts"])]
    lines += [f"left out: {one['name']}, {one['why']}" for one in values["left_out"]]
    if values["ties"]:
        lines.append(f"router ties: {len(values['ties'])} tokens where rounding may choose another expert")
    gguf = values.get("gguf", {})
    lines.append(f"gguf: {gguf.get('type') or 'none, ' + gguf.get('left_out', 'not asked for')}")
    following = f"assay twin --check {shlex.quote(str(options.output))}"
    _answer(options.json, "made", OK, sentence, following, [sentence, *lines], {"twin": values})
    return OK


def _check(options: argparse.Namespace) -> int:
    from assay.twin import checking

    with twin.quiet():
        rows = checking.check(options.folder)
    marks = {True: "good", False: "BAD", None: "-"}
    lines = [f"{row.what:<28} {marks[row.good]:<5} {row.seen}" for row in rows]
    bad = [row.what for row in rows if row.good is False]
    folder = shlex.quote(str(options.folder))
    if bad:
        sentence, following = f"bad: {', '.join(bad)}", "assay help twin"
    else:
        sentence = f"good: {sum(row.good is True for row in rows)} properties are as they were made"
        following = f'assay gate {folder} --mine "CMD"'
    more = {"findings": [asdict(row) for row in rows]}
    status = WRONG if bad else OK
    _answer(options.json, "bad" if bad else "good", status, sentence, following, [*lines, sentence], more)
    return status


def _answer(
    as_json: bool, outcome: str, status: int, sentence: str, following: str, lines: list[str], more: dict[str, Any]
) -> None:
    """Prints the lines and the next command, or all as one object (docs/schemas/twin.schema.json)."""
    if as_json:
        values = {"version": 1, "command": "twin", "outcome": outcome, "exit_status": status, "sentence": sentence}
        print(json.dumps({**values, "next": following, **more}))
    else:
        print("\n".join([*lines, f"next: {following}"]))


def _run(options: argparse.Namespace) -> int:
    """Prints a digest of the logits of each prompt, so that two runs can be told apart at a glance."""
    if options.folder is None:
        return _refuse("run needs the folder of a twin, or ASSAY_TWIN in the environment", as_json=False)
    with twin.quiet():
        model = twin.load(options.folder, dtype=options.dtype, attention=options.attention)
        for name, logits in twin.run(model, options.folder).items():
            digest = hashlib.sha256(logits.float().contiguous().numpy().tobytes()).hexdigest()[:16]
            print(f"{name} {tuple(logits.shape)} {digest}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
