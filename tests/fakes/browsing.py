"""A page in a real browser: headless Chromium driven by Playwright, offline, with all that it says and asks for written down."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

# as Debian, Fedora, Ubuntu and Google name it
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "needs a Chromium on the path (Debian: apt-get install chromium)"


@dataclass
class Opened:
    """A page that is open, what it said on the console, and every address that it asked for beside its own file."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def texts(self, selector: str) -> list[str]:
        """The texts of the elements that are seen, in their order."""
        found = self.page.locator(selector)
        return [one.inner_text().strip() for one in found.all() if one.is_visible()]

    def download(self, selector: str) -> bytes:
        """What a click on an element saves."""
        with self.page.expect_download() as waiting:
            self.page.locator(selector).first.click()
        return Path(waiting.value.path()).read_bytes()

    def violations(self, selector: str = "html") -> list[str]:
        """What axe-core finds wrong in an element, in short."""
        if not self.page.evaluate("typeof window.axe === 'object'"):
            # past the page's own policy, which lets no other script in
            axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
            self.page.evaluate(axe)
        found = self.page.evaluate("(within) => axe.run(within, {resultTypes: ['violations']})", selector)["violations"]
        return [
            f"{one['id']}: {node['html'][:160]} {node['failureSummary']}" for one in found for node in one["nodes"][:3]
        ]


@contextmanager
def browser() -> Iterator[Any]:
    """The browser; one serves all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # the sandbox cannot be had by root, and what is opened is ours
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(
    running: Any, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, fragment: str = ""
) -> Iterator[Opened]:
    """A file opened as from a mail attachment: offline, and with downloads allowed."""
    context = running.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        accept_downloads=True,
        offline=True,
    )
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.said.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    context.on("request", lambda request: found.asked.append(request.url))
    found.page.goto(path.as_uri() + fragment)
    try:
        yield found
    finally:
        context.close()
    outside = [url for url in found.asked if not url.startswith((path.as_uri(), "blob:", "data:"))]
    assert found.said == []
    assert outside == []
