# SPDX-License-Identifier: Apache-2.0
"""Runs that cut the same tokens into other steps: a prompt in chunks, guessed tokens that are checked several at once,
a text computed again from its start for each token. Real models of transformers with random weights.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from assay_command import run

import assay

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("assay._capture")

PROMPT = [5, 9, 11, 7] * 5
NEW_TOKENS = 6
FAULTY = "model.layers.1.mlp.down_proj"


def llama(**changes):
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 96}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **heads, **changes})).eval()
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model


def generate(model, batch=1, **options):
    ids = torch.tensor([PROMPT] * batch)
    ids[1:, 3] = 13  # the sequences of a batch differ
    mask = torch.ones_like(ids)
    return model.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, **options)


def prompt_whole(model, batch=1):
    ids = torch.tensor([PROMPT] * batch)
    ids[1:, 3] = 13
    return model(input_ids=ids, use_cache=True)


def prompt_in_chunks(model, batch=1, size=8):
    cache = transformers.DynamicCache(config=model.config)
    ids = torch.tensor([PROMPT] * batch)
    ids[1:, 3] = 13
    for first in range(0, len(PROMPT), size):
        model(input_ids=ids[:, first : first + size], past_key_values=cache, use_cache=True)


WAYS = {
    "whole": prompt_whole,
    "chunks": prompt_in_chunks,
    "chunks of five": lambda model: prompt_in_chunks(model, size=5),
    "two whole": lambda model: prompt_whole(model, batch=2),
    "two in chunks": lambda model: prompt_in_chunks(model, batch=2),
    "greedy": generate,
    "lookup": lambda model: generate(model, prompt_lookup_num_tokens=3),
    "generated behind chunks": lambda model: generate(model, prefill_chunk_size=8),
    "without cache": lambda model: generate(model, use_cache=False),
    "other prompt": lambda model: model(input_ids=torch.tensor([PROMPT[::-1]]), use_cache=True),
}


class Runs:
    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, way: str, *, faulty=False, level="module", **options) -> Path:
        words = [way, level, "faulty" if faulty else "healthy", *(f"{k}-{v}" for k, v in options.items())]
        path = self.folder / re.sub(r"\W+", "-", " ".join(words))
        if not path.exists():
            model = llama()
            if faulty:
                module = model.get_submodule(FAULTY)
                module.register_forward_hook(lambda module, inputs, output: output * 1.05)
            with torch.no_grad(), assay.capture(model, str(path), level=level, **options):
                WAYS[way](model)
        return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("steps"))


def compare(golden, mine, tmp_path, *options):
    return run("compare", golden, mine, "--rel-l2", "1e-5", "-o", tmp_path / "out", *options)


PAIRS = [
    ("whole", "chunks"),
    ("chunks", "whole"),
    ("chunks", "chunks of five"),
    ("two whole", "two in chunks"),
    ("greedy", "lookup"),
    ("lookup", "greedy"),
    ("greedy", "generated behind chunks"),
    ("greedy", "without cache"),
    ("without cache", "greedy"),
]


@pytest.mark.parametrize(("golden", "mine"), PAIRS)
def test_the_same_tokens_in_other_steps_are_the_same(runs, tmp_path, golden, mine):
    # A mask of one chunk has no counterpart in a run that was cut otherwise.
    done = compare(runs(golden), runs(mine), tmp_path, "--allow-unmatched", "*attention_mask")
    assert done.returncode == 0, done.stdout
    assert "paired by the tokens' ids and positions" in done.stdout
    assert "shape doesn't match" not in done.stdout
    pairs = int(re.search(r"within the limits: all (\d+) pairs", done.stdout)[1])
    assert pairs >= 75  # a prompt in one step has 78 tensors
    assert "choose other tokens" not in done.stdout, "the logits of one token were held against another's"


@pytest.mark.parametrize(("golden", "mine"), PAIRS)
def test_a_fault_in_other_steps_is_found_in_its_place(runs, tmp_path, golden, mine):
    done = compare(runs(golden), runs(mine, faulty=True), tmp_path)
    assert done.returncode == 1, done.stdout
    first = re.search(r"first beyond its limit.*\n\s+(.*)", done.stdout)[1]
    assert first.endswith(f"{FAULTY} output"), done.stdout


@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize(
    ("golden", "mine"), [("whole", "chunks"), ("greedy", "lookup"), ("chunks", "whole"), ("greedy", "without cache")]
)
def test_locate_judges_steps_that_were_cut_otherwise(runs, tmp_path, golden, mine, level):
    reference = runs(golden, level="operator", weights=True)
    done = run("locate", reference, runs(mine, level=level, weights=True))
    assert done.returncode == 0, done.stdout
    assert "\nclean: " in done.stdout

    done = run("locate", reference, runs(mine, level=level, weights=True, faulty=True))
    assert done.returncode == 1, done.stdout
    assert f"first bad: {FAULTY} (Linear, step 0)" in done.stdout


def test_operators_inside_are_compared_by_tokens_too(runs, tmp_path):
    done = compare(
        runs("whole", level="operator"), runs("chunks", level="operator"), tmp_path, "--allow-unmatched", "*"
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"within the limits: all (\d+) pairs", done.stdout)[1]) > 234  # those of modules


def test_statistics_are_taken_of_the_tokens_in_common(runs, tmp_path):
    done = run("compare", runs("whole"), runs("chunks"), "--stats", "--rel-l2", "1e-5", "-o", tmp_path / "out")
    assert "paired by the tokens' ids and positions" in done.stdout
    assert "differs" not in done.stdout, done.stdout


@pytest.mark.parametrize("captured", [{"inputs": False}, {"data": "stats"}])
def test_steps_without_ids_are_paired_by_number_and_it_is_said(runs, tmp_path, captured):
    done = run("compare", runs("whole", **captured), runs("chunks", **captured), "-o", tmp_path / "out")
    assert "which tokens was not captured" in done.stdout
    assert "they are paired by number" in done.stdout


def test_other_prompts_are_paired_by_number_as_ever(runs, tmp_path):
    done = compare(runs("whole"), runs("other prompt"), tmp_path)
    assert done.returncode == 1
    assert "cut their tokens into steps" not in done.stdout
    assert "78 pairs" in done.stdout


def test_the_users_steps_win(runs, tmp_path):
    done = run("compare", runs("whole"), runs("chunks"), "--token-map", "0:2", "-o", tmp_path / "out")
    assert "78 pairs" in done.stdout
    assert "steps 2," in done.stdout


def test_a_row_says_which_tokens_it_is_of(runs, tmp_path):
    compared = run("compare", runs("whole"), runs("chunks"), "--jsonl", "-o", tmp_path / "out")
    assert compared.returncode == 0, compared.stderr
    (lines,) = (tmp_path / "out").glob("*.jsonl")
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    notes = [str(row) for row in rows if f"{FAULTY} output" in str(row) or FAULTY in str(row)]
    assert any("8 tokens of golden's step 0" in note for note in notes), notes[:2]
    assert any("4 tokens of golden's step 0" in note for note in notes)


def two_ranks(folder: Path, monkeypatch, *ways: str, level="module") -> Path:
    """A run of two processes, of which the first computes its prompt one way and the second another."""
    for rank, way in enumerate(ways):
        monkeypatch.setenv("RANK", str(rank))
        model = llama()
        with torch.no_grad(), assay.capture(model, str(folder), level=level, weights=True):
            WAYS[way](model)
    return folder


@pytest.mark.parametrize(("first", "second", "by_tokens"), [("chunks", "whole", False), ("whole", "chunks", True)])
def test_the_users_rank_is_the_one_whose_tokens_count(monkeypatch, tmp_path, first, second, by_tokens):
    # One rank of mine cut its prompt: the table took rank 0's tokens for rank 1's, the verdict went by number.
    golden = two_ranks(tmp_path / "golden", monkeypatch, "whole", "whole", level="operator")
    mine = two_ranks(tmp_path / "mine", monkeypatch, first, second)
    done = compare(golden, mine, tmp_path, "--ranks", "1", "--verdict", "--allow-unmatched", "*")
    assert ("paired by the tokens' ids and positions" in done.stdout) == by_tokens, done.stdout
    assert "\nclean: " in done.stdout
    assert done.returncode == 0, done.stdout
