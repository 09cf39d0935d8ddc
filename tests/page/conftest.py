# SPDX-License-Identifier: Apache-2.0
"""Pages in a browser without a screen, and the runs that they are made of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import pytest
from page_scenes import EXAMPLES, Scene, compared, dumped

pytest.importorskip("playwright.sync_api")


@dataclass
class Opened:
    """A page in the browser, and what it must not have done."""

    page: Any
    errors: list[str] = field(default_factory=list)  # of the console and uncaught
    requests: list[str] = field(default_factory=list)  # of anything but the file itself

    def check(self) -> None:
        assert self.errors == []
        assert self.requests == []


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """open_page(path, width=1280, height=800, dark=False, fragment="") waits until the page can be used. At the end of
    the test every page opened must have made no request and written no error."""
    contexts = []
    opened: list[Opened] = []

    def open_file(path: Path, width: int = 1280, height: int = 800, dark: bool = False, fragment: str = "") -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        one = Opened(context.new_page())
        address = path.resolve().as_uri()
        one.page.on("pageerror", lambda error: one.errors.append(str(error)))
        one.page.on("console", lambda said: one.errors.append(said.text) if said.type in ("error", "warning") else None)

        def note(request: Any) -> None:
            if not request.url.startswith((address, "blob:", "data:")):
                one.requests.append(request.url)

        one.page.on("request", note)
        one.page.goto(address + fragment)
        opened.append(one)
        one.page.wait_for_selector("html[data-ready]", timeout=30_000)
        one.check()
        return one

    yield open_file
    for one in opened:
        one.check()
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """examples/small_model.py, four layers and one step: layers.2.norm has a weight 3 % too large."""
    folder = tmp_path_factory.mktemp("small")
    program = str(EXAMPLES / "small_model.py")
    golden = dumped(folder / "golden", "operator", program)
    mine = dumped(folder / "mine", "module", program, "--bfloat16", "--fault")
    return compared(golden, mine, folder)


LLAMA = """
import sys, torch, assay
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=176, num_hidden_layers=6, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=256, max_position_embeddings=64, pad_token_id=0)
prompt = torch.arange(1, 13).unsqueeze(0)
for side in ("golden", "mine"):
    torch.manual_seed(2033)
    model = LlamaForCausalLM(config).eval()
    if side == "mine":
        model.get_submodule("model.layers.3.input_layernorm").weight.data *= 1.03
        model = model.to(torch.bfloat16)
    level = "operator" if side == "golden" else "module"
    with torch.no_grad(), assay.capture(model, sys.argv[1] + "/" + side, level=level, weights=True, steps=[0, 1, 2]):
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=3, do_sample=False)
"""


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A Llama of six layers over three steps: the weight of layer 3's first norm is 3 % too large."""
    folder = tmp_path_factory.mktemp("llama")
    subprocess.run([sys.executable, "-c", LLAMA, str(folder)], check=True, capture_output=True, env=os.environ)
    return compared(folder / "golden", folder / "mine", folder)
