# SPDX-License-Identifier: Apache-2.0
"""Netron, in a browser without a screen, draws our ONNX files without an error."""

from __future__ import annotations

import json

import netron
import pytest
from test_topology import decoder_layer, model

from assay.topology import read_topology

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow


@pytest.fixture
def draw(browser, tmp_path):
    """Opens an ONNX file in Netron and gives the page, and the list that collects its errors."""
    contexts = []

    def open_page(content: bytes):
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        host, port = netron.start(str(path), address=("127.0.0.1", 0), browse=False)
        address = f"http://{host}:{port}"
        context = browser.new_context()
        contexts.append((context, (host, port)))
        # No question about cookies, and nothing is asked of the network.
        context.add_cookies([{"name": "consent", "value": "1", "url": address}])
        context.route(
            "**/*", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort()
        )
        # Netron takes eval() away from its page; Playwright reads elements with it.
        context.add_init_script(
            "(() => { const kept = window.eval;"
            " Object.defineProperty(window, 'eval', {get: () => kept, set: () => {}}); })()"
        )
        page = context.new_page()
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        # The class of the body says what Netron shows: "default" is the drawing, "alert" a message about an error.
        page.wait_for_selector("body.default, body.alert, body.notification", timeout=60_000)
        assert page.get_attribute("body", "class") == "default", page.text_content(".message-text")
        return page, errors

    yield open_page
    for context, address in contexts:
        context.close()
        netron.stop(address)


def read(tmp_path, content):
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(content))
    return read_topology(path)


def titles(page):
    """Operator type and node name of each box, as one text."""
    return [text for text in page.locator(".node-item-type").all_text_contents() if not text.startswith("ƒ")]


def test_the_flat_file_is_drawn(draw, tmp_path):
    page, errors = draw(read(tmp_path, decoder_layer()).to_onnx())
    assert titles(page) == [
        "RmsNormOperationRmsNormOperation_0_0",
        "LinearOperationLinearOperation_0_1_0",
        "ActivationOperationActivationOperation_0_1_1",
        "ElewiseOperationElewiseOperation_0_2",
    ]
    # Three inputs, of which one is read twice, three tensors between nodes, one output.
    assert page.locator(".edge-path").count() == 8
    assert errors == []


@pytest.mark.parametrize("share_functions", [False, True])
def test_the_hierarchical_file_is_drawn_and_its_functions_open(draw, tmp_path, share_functions):
    content = read(tmp_path, model(3)).to_onnx(style="hierarchical", share_functions=share_functions)
    page, errors = draw(content)
    assert len(titles(page)) == 3
    page.locator(".node-item-type", has_text="ƒ").nth(1).click()
    inner = page.locator(".node-item-type", has_text="RmsNormOperation")
    inner.wait_for(timeout=30_000)
    assert [text.split("Operation")[0] for text in titles(page)] == (
        ["RmsNorm", "MlpMlp_1", "Elewise"] if share_functions else ["RmsNorm", "Mlp_1_1Mlp_1_1", "Elewise"]
    )
    assert errors == []
