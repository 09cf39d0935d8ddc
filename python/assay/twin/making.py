# SPDX-License-Identifier: Apache-2.0
"""Makes a twin: a configuration shrunk, weights drawn and shaped, prompt_set tried, everything written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

import torch

from assay import twin
from assay.twin import drawing, extremes, files, measure, places, prompt_set, shaping, shrink, sources, ties

LARGEST_FLOAT16 = 65504.0
LARGEST_TWIN = 1e9  # parameters
SATURATED = 10.0  # spread of the scores of every third head, before the softmax
ROOM = 0.95  # of it is never passed


@dataclass(frozen=True)
class Request:
    """What is asked for; docs/commands/twin.md says what each is."""

    source: Path
    output: Path
    layers: int = 4
    width: int = 128
    seed: int = 0
    same_size: bool = False
    float16_limit: bool = True
    gguf_type: Optional[str] = "f32"


def make(request: Request) -> dict[str, Any]:
    """Writes the folder; returns what twin.json says.

    Raises:
        ValueError, OSError: with one sentence; nothing is left behind.
    """
    with one_threaded():
        config = sources.read(request.source)
        with files.appearing(request.output) as folder:
            small = _sized(config, request)
            model = _built(small, request)
            values = _shaped(model, request)
            model.save_pretrained(folder)
            _read_back(model, folder)
            if request.gguf_type:
                values["gguf"] = _gguf(folder, request.gguf_type)
            files.write(folder, values)
    return files.read(request.output)


def _sized(config: Any, request: Request) -> Any:
    if request.same_size:
        return config.get_text_config(decoder=True)
    try:
        return shrink.shrink(config, request.layers, request.width)
    except ValueError as why:
        raise ValueError(f"{request.source}: {sources.one_line(why)}") from why


def _built(config: Any, request: Request) -> Any:
    """The model with drawn weights, in float32."""
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    torch.manual_seed(1000 + request.seed)
    try:
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in auto.from_config(config).parameters())
        if size > LARGEST_TWIN:
            raise ValueError(f"{size / 1e9:.1f} billion parameters are too many for a twin")
        model = auto.from_config(config, dtype=torch.float32).eval()
    except Exception as why:  # whatever transformers has against the sizes
        raise ValueError(
            f"{request.source}: transformers cannot build a {config.model_type} of these sizes: {sources.one_line(why)}"
        ) from why
    drawing.draw(model, torch.Generator().manual_seed(request.seed))
    try:
        with torch.no_grad():
            model(input_ids=torch.tensor([[1, 2, 1, 2]]))
    except Exception as why:
        raise ValueError(
            f"{request.source}: transformers cannot run a {config.model_type} of these sizes: {sources.one_line(why)}"
        ) from why
    return model


def _shaped(model: Any, request: Request) -> dict[str, Any]:
    """Shapes the weights; returns what was done and which prompts show it."""
    config = model.config
    bos = config.bos_token_id
    first_token = bos if isinstance(bos, int) and 0 <= bos < config.vocab_size else 1
    shape = shaping.shape(model, request.seed, first_token, config.vocab_size, saturated=SATURATED)
    draw = torch.Generator().manual_seed(request.seed + 1)
    asked, left_out = prompt_set.draw(model, draw, first_token)
    if not asked:
        raise ValueError(f"{request.source}: {left_out[0].why}")

    def run() -> None:
        for prompt in asked:
            prompt_set.run(model, prompt)

    if not measure.largest_activation(model, "float32", asked)[2]:
        raise ValueError(f"{request.source}: a {config.model_type} with random weights gives no finite numbers")
    written = extremes.write_and_erase(model, shape.outliers, run, draw)
    large = _large(model, asked, run) if request.float16_limit else None
    found = ties.find(model, asked)
    return {
        "made_by": _versions(),
        "source": {"name": _name_of(request.source), "architecture": config.model_type},
        "seed": request.seed,
        "first_token": first_token,
        "layers": places.of(model).layers,
        "width": int(model.get_input_embeddings().weight.shape[1]),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "shaped": {
            "outlier_channels": list(shape.outliers),
            "written": asdict(written) if written else None,
            "large": asdict(large) if large else None,
        },
        "prompts": [prompt.values() for prompt in asked],
        "left_out": [one.values() for one in left_out],
        "ties": [tie.values() for tie in found],
    }


def _large(model: Any, asked: list[prompt_set.Prompt], run: Any) -> Optional[extremes.Large]:
    """An activation near the limit of float16, less near where float16 itself would pass it; None, and the model as it
    was, where it passes it all the same."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    largest = extremes.LARGE
    for _ in range(4):
        large = extremes.reach_float16(model, run, largest)
        if large is None:
            return None
        peak, _, finite = measure.largest_activation(model, "float16", asked)
        if finite and peak < ROOM * LARGEST_FLOAT16 and not measure.overflows(model, asked):
            return large
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(before[name])
        largest /= 2
    return None


def _read_back(model: Any, folder: Path) -> None:
    """Holds the files against the model: transformers renames and splits some weights when it writes them."""
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    again = auto.from_pretrained(folder, local_files_only=True, dtype=torch.float32).state_dict()
    different = [name for name, value in model.state_dict().items() if not torch.equal(value, again[name])]
    if different:
        raise ValueError(f"transformers does not read {different[0]} as it was written")


def _gguf(folder: Path, kind: str) -> dict[str, Any]:
    """Writes model.gguf where the family has a converter; says why where not."""
    try:
        from assay.twin import gguf_file
    except ImportError as why:
        return {"left_out": f"the package {why.name} is not installed"}
    path = folder / files.GGUF
    try:
        gguf_file.convert(folder, path, kind)
    except ValueError as why:
        path.unlink(missing_ok=True)
        return {"left_out": sources.one_line(why)}
    return {"file": files.GGUF, "type": kind, "sha256": files.digest(path)}


def _name_of(source: Path) -> str:
    """Of the model: its folder's, when the file is called as that of every model."""
    path = source.resolve()
    return path.parent.name if path.name == "config.json" else path.name


def _versions() -> dict[str, str]:
    import transformers

    import assay

    return {"assay": assay.__version__, "torch": torch.__version__, "transformers": transformers.__version__}


@contextmanager
def one_threaded() -> Iterator[None]:
    """One thread computes, so that sums have the same bits, and the caller's random numbers go on as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with twin.quiet(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
