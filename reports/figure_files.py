"""The figures of a page as files of their own: white ground, dark ink, sizes in points."""

import html
import re
from collections import Counter

from attnbench.reports.rendering import slug

_INK, _GROUND = "#1c1f22", "#ffffff"


def figure_files(page: str) -> dict[str, str]:
    """SVG texts by file name, from the text of a page: what its figures are called, without letters that files dislike."""
    found: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for name, figure in re.findall(r'<figure aria-label="([^"]*)"[^>]*>(.*?)</figure>', page, flags=re.DOTALL):
        drawn = re.search(r'<svg role="img".*?</svg>', figure, flags=re.DOTALL)
        if drawn is not None:
            stem = re.sub("-+", "-", slug(html.unescape(name).lower())).strip("-")
            taken[stem] += 1
            found[f"{stem}.svg" if taken[stem] == 1 else f"{stem}-{taken[stem]}.svg"] = _standing_alone(drawn[0])
    return found


def _standing_alone(svg: str) -> str:
    opening, rest = svg.split(">", 1)
    ground = f'<rect width="100%" height="100%" fill="{_GROUND}"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{opening} color="{_INK}">{ground}{rest}\n'
