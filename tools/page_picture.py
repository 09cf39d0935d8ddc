#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/page.png, the picture of a page in the README: tools/page_picture.py [DEMO_FOLDER]

DEMO_FOLDER holds the runs of examples/demo.py, demo-output by default; without it the demonstration runs first. Needs
the command `assay` on PATH, and chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "page.png"
WIDTH, HEIGHT = 1200, 860
MOST_BYTES = 200_000


def write_page(runs: Path, page: Path) -> None:
    """Compares the two runs of the demonstration; the page is opened at the suspect."""
    words = ["assay", "compare", "golden", "mine", "-o", str(page.parent / "report"), "--html", str(page)]
    done = subprocess.run(words, cwd=runs, check=False, stdout=subprocess.DEVNULL)
    if done.returncode != 1:  # the fault of the demonstration is named
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}")


def take_picture(page: Path, picture: Path) -> None:
    """What a browser shows of the page's first screen."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.goto(page.as_uri())
        view.wait_for_selector("html[data-ready=true]")
        view.get_by_role("button", name="Open the suspect").click()
        view.wait_for_timeout(500)
        view.evaluate("window.scrollTo(0, 0)")
        view.screenshot(path=picture)
        browser.close()


def main() -> int:
    """Returns the exit status."""
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "demo-output").resolve()
    if not runs.is_dir():
        subprocess.run([sys.executable, ROOT / "examples" / "demo.py", runs], check=True)
    with tempfile.TemporaryDirectory() as folder:
        write_page(runs, Path(folder) / "page.html")
        take_picture(Path(folder) / "page.html", PICTURE)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(ROOT)}: {size} bytes")
    if size > MOST_BYTES:
        print(f"page_picture: more than {MOST_BYTES} bytes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
