"""How a number is written for a reader: enough digits to compare, its unit, no false precision."""

import math

_WHOLE = {"steps", "parameters", "floats", "keys", "tokens"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def written(value: float, unit: str) -> str:
    """`value` in short.

    retrieval loss 0.000234 -> 0.00023   perplexity 1234.5 -> 1,235   12595200 B -> 12.0 MiB   63120 tokens/s -> 63.1k
    """
    if not math.isfinite(value):
        return "not finite"
    if unit in _WHOLE and value == round(value):
        return f"{value:,.0f}"
    if unit == "B":
        return _bytes(value)
    if unit.endswith("/s") and abs(value) >= 1000:
        return _thousands(value)
    return _significant(value)


def setting_written(value: object) -> str:
    """A point setting in short: whole numbers with separators, yes and no for booleans."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{int(value):,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def seconds_written(seconds: float) -> str:
    """A duration: 0.4 s, 12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _bytes(value: float) -> str:
    step = 0
    while abs(value) >= 1024 and step < len(_BINARY) - 1:
        value /= 1024
        step += 1
    return f"{value:.0f} B" if step == 0 else f"{_significant(value)} {_BINARY[step]}"


def _thousands(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{_significant(value / size)}{letter}"
    return _significant(value)


def _significant(value: float) -> str:
    """Three digits, two below 0.01, the whole part in full; powers of ten below 0.0001 and from ten million on."""
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-4:
        return f"{value:.1e}".replace("e-0", "e-")
    if size >= 1e7:
        return f"{value:.2e}".replace("e+0", "e+").replace("e+", "e")
    digits = 2 if size < 0.01 else 3
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    if 10 <= size < 1000:
        decimals = 1
    return f"{value:,.{decimals}f}"
