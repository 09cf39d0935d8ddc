# SPDX-License-Identifier: Apache-2.0
"""Runs held against themselves: programs that nobody has seen, captured with options that nobody has chosen.

A program is a model of drawn parts, called in a drawn way: as a server calls it whose inputs have one place each, in
batches, step by step with a cache, in several threads. What is captured of it is drawn, too.
"""

from __future__ import annotations

import collections
import contextlib
import random
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.campaign.campaign import FAILED, MISTAKE, OK, ROOT, SAMPLE_SEED, Campaign, Case, Result, Workplace, rounds
from bench.report import Row

if TYPE_CHECKING:
    import torch

sys.path.append(str(ROOT / "tests" / "support"))
import agreement

FIRST_SEED = 2_000_000
IN_SAMPLE = 2  # of each kind
WIDTH, TOKENS, WORDS = 24, 6, 40
KINDS = {
    "loop": "the same model called again and again, with new tensors",
    "server": "inputs that have one place each and are filled before each call, in seven ways",
    "threads": "two threads that call one model",
    "pair": "two models in turn",
    "generate": "a small language model of transformers that generates, with a cache",
    "assisted": "the same with guessed tokens",
}


def _parts(draw: random.Random) -> torch.nn.Module:
    """A model from tokens to logits."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.fused = draw.random() < 0.5

        def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1))
            if self.fused:
                mixed = nn.functional.scaled_dot_product_attention(q, k, v, mask)
            else:
                mixed = torch.softmax(q @ k.transpose(-1, -2) / 2.45 + mask, -1) @ v
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Feed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            self.function = draw.choice((nn.functional.gelu, nn.functional.silu, torch.relu, torch.tanh))
            self.in_place = draw.random() < 0.3

        def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            opened = self.up(hidden)
            if self.in_place:
                opened.mul_(0.5).add_(0.125)
            return self.down(self.function(opened))

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(WIDTH, 4)
            self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            shares, chosen = torch.softmax(self.router(hidden), -1).topk(2, sorted=False)
            result = torch.zeros_like(hidden)
            for number, expert in enumerate(self.experts):
                where = chosen == number
                if where.any():
                    rows = where.any(-1)
                    result[rows] += expert(hidden[rows]) * (shares * where).sum(-1)[rows].unsqueeze(-1)
            return result

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.cell(hidden)[0]

    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Conv1d(WIDTH, WIDTH, 3, padding=2, groups=WIDTH)

        def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.filter(hidden.transpose(1, 2))[..., : hidden.shape[1]].transpose(1, 2)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
            kinds = (Attention, Feed, Experts, Recurrent, Convolution)
            self.layers = nn.ModuleList(draw.choice(kinds)() for _ in range(draw.randint(1, 4)))
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in self.layers)
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            if draw.random() < 0.4:
                self.head.weight = self.embed.weight
            if draw.random() < 0.3:
                self.norms[-1] = self.norms[0]  # shared
            self.register_buffer("scale", torch.ones(1))
            self.counts = draw.random() < 0.3

        def forward(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> Any:
            if self.counts:
                self.scale += 0.0625
            hidden = (self.embed(ids) + self.places(positions)) * self.scale
            for layer, norm in zip(self.layers, self.norms):
                hidden = hidden + layer(norm(hidden), mask)
            logits = self.head(hidden)
            return {"logits": logits, "last": hidden[:, -1]} if self.counts else logits

    return Model().eval()


def _inputs(draw: random.Random, step: int, batch: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    import torch

    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    ids = torch.randint(WORDS, (batch, TOKENS), generator=generator)
    mask = torch.full((batch, 1, TOKENS, TOKENS), float("-inf"), dtype=dtype).triu(1)
    return ids, torch.arange(step, step + TOKENS).expand(batch, -1).clone(), mask


def _fill(way: int, buffer: torch.Tensor, values: torch.Tensor) -> None:
    import torch

    def by_numpy() -> None:
        if buffer.dtype in (torch.bfloat16,):
            buffer.view(torch.int16).numpy()[...] = values.view(torch.int16).numpy()
        else:
            buffer.numpy()[...] = values.numpy()

    def by_rows() -> None:
        for row in range(len(buffer)):
            buffer[row] = values[row]

    (
        lambda: buffer.copy_(values),
        by_numpy,
        lambda: buffer.data.copy_(values),
        by_rows,
        lambda: buffer.zero_().add_(values),
        lambda: buffer.set_(values.clone()),
        lambda: torch.from_dlpack(buffer.__dlpack__()).copy_(values),
    )[way]()


class Program:
    """A program of a case: made anew it computes the same.

    Attributes:
        about: what was drawn.
    """

    def __init__(self, kind: str, number: int) -> None:
        import torch

        draw = random.Random(f"{kind}-{number}")
        torch.manual_seed(draw.randrange(2**31))
        self._kind = kind
        self._steps = draw.randint(1, 5)
        self._batch = draw.randint(1, 3)
        self._way = draw.randrange(7)
        self._dtype = draw.choice((torch.float32, torch.float32, torch.bfloat16))
        self._mode = draw.choice((torch.no_grad, torch.inference_mode, contextlib.nullcontext))
        self._draw_inputs = draw.randrange(2**31)
        if kind in ("generate", "assisted"):
            self.models = [_language_model(draw.choice(("llama", "qwen2", "gpt2")), draw).to(self._dtype)]
        else:
            self.models = [_parts(draw).to(self._dtype) for _ in range(2 if kind == "pair" else 1)]
        wanted: Any = draw.choice((None, None, 0, [0, 1], range(1, 3)))
        self.options: dict[str, Any] = {
            "level": draw.choice(("module", "operator", "operator")),
            "data": draw.choice(("full", "full", "full", "stats")),
            "steps": wanted,
            "weights": draw.random() < 0.7,
            "digest": draw.random() < 0.3,
            "verify": draw.random() < 0.2,
            "caches": draw.random() < 0.3,
            "inputs": draw.random() < 0.9,
        }
        said = {**self.options, "dtype": str(self._dtype), "mode": self._mode.__name__, "steps run": self._steps}
        self.about = f"{said}, filled in way {self._way}"

    def run(self) -> None:
        """Calls the models."""
        draw = random.Random(self._draw_inputs)
        if self._kind in ("generate", "assisted"):
            self._generate(draw)
        elif self._kind == "threads":
            # Which of two calls is first is the machine's to choose, so they take turns.
            for step in range(self._steps):
                worker = threading.Thread(target=self._call, args=(0, _inputs(draw, step, self._batch, self._dtype)))
                worker.start()
                worker.join()
                self._call(0, _inputs(draw, step, self._batch, self._dtype))
        else:
            places = _inputs(draw, 0, self._batch, self._dtype)
            for step in range(self._steps):
                given = _inputs(draw, step, self._batch, self._dtype)
                if self._kind == "server":
                    for buffer, values in zip(places, given):
                        _fill(self._way, buffer, values)
                    given = places
                self._call(step % len(self.models), given)

    def _call(self, number: int, given: tuple[torch.Tensor, ...]) -> None:
        with self._mode():
            self.models[number](*given)

    def _generate(self, draw: random.Random) -> None:
        import torch

        (model,) = self.models
        generator = torch.Generator().manual_seed(draw.randrange(2**31))
        ids = torch.randint(2, 60, (1, 9), generator=generator).repeat(1, 2)
        more = {"prompt_lookup_num_tokens": 3} if self._kind == "assisted" else {}
        with torch.no_grad():
            model.generate(ids, max_new_tokens=self._steps + 2, do_sample=False, pad_token_id=0, **more)


def _language_model(name: str, draw: random.Random) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64}
    more = {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
    attention = draw.choice(("eager", "sdpa"))
    config = {
        "llama": lambda: transformers.LlamaConfig(**sizes, **more, attn_implementation=attention),
        "qwen2": lambda: transformers.Qwen2Config(**sizes, **more, attn_implementation=attention),
        "gpt2": lambda: transformers.GPT2Config(
            n_embd=32, n_head=4, n_layer=2, vocab_size=64, n_positions=64, attn_implementation=attention
        ),
    }[name]()
    return transformers.AutoModelForCausalLM.from_config(config).eval()


class Agrees(Campaign):
    """Runs against themselves, and against another run of the same program."""

    name = "agrees"
    title = "Runs against themselves"
    about: tuple[str, ...] = (
        "Each case is a program with drawn parts, inputs, ways to be called and options of the capture, which is "
        "captured twice. The first run is compared with itself and with the second: the table must be same, the "
        "verdict clean or `cannot judge`. Anything else is a *disagreement*.",
    )
    weight = 1
    timeout_s = 300
    least_s = 5
    columns = ["", "programs", "agree", "disagree"]

    def cases(self, seed: int) -> Iterator[Case]:
        """Kind after kind, without an end."""
        draw = random.Random(f"agrees {seed}")
        for kind in rounds(KINDS, draw):
            yield _case(kind, draw.randrange(FIRST_SEED, 2**31))

    def sample(self) -> Iterable[Case]:
        """A few of each kind."""
        draw = random.Random(SAMPLE_SEED)
        return [_case(kind, draw.randrange(FIRST_SEED, 2**31)) for kind in KINDS for _ in range(IN_SAMPLE)]

    def case_of(self, name: str) -> Case:
        """From ``<kind>-<number>``."""
        found = re.fullmatch(r"(?P<kind>[a-z]+)-(?P<number>\d+)", name)
        if found is None or found["kind"] not in KINDS:
            raise ValueError(f"no program is called {name!r}")
        return _case(found["kind"], int(found["number"]))

    def run(self, case: Case, work: Workplace) -> Result:
        """Two captures and four comparisons."""
        import torch

        torch.set_num_threads(1)  # so that results do not depend on the machine
        kind, number = case.name.split("-")
        runs = [work.scratch / name for name in ("first", "second")]
        about, _ = (_capture(kind, int(number), run) for run in runs)
        assay = agreement.command()
        if assay is None:
            raise RuntimeError("the command assay is not installed")
        said = [agreement.disagreement(assay, runs[0]), agreement.disagreement(assay, *runs)]
        if not work.keep:
            for run in runs:
                shutil.rmtree(run)
        wrong = next((text for text in said if text), "")
        return {"outcome": MISTAKE if wrong else OK, "reason": f"{wrong} [{about}]" if wrong else ""}

    def rows(self, results: list[Result]) -> list[Row]:
        """By kind, and all."""
        counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for result in results:
            if result["outcome"] == FAILED:
                continue
            kind = result["case"].split("-")[0]
            for line in (f"{kind}: {KINDS[kind]}", "all"):
                counted[line]["programs"] += 1
                counted[line]["agree" if result["outcome"] == OK else "disagree"] += 1
        return [Row(line, {key: str(counted[line][key]) for key in self.columns[1:]}) for line in sorted(counted)]


def _case(kind: str, number: int) -> Case:
    return Case(f"{kind}-{number}", group=kind)


def _capture(kind: str, number: int, folder: Path) -> str:
    """Makes and captures the program of a case; returns what was drawn."""
    import assay

    program = Program(kind, number)
    models: Any = program.models[0] if len(program.models) == 1 else dict(zip("ab", program.models))
    with assay.capture(models, folder, **program.options):
        program.run()
    return program.about
