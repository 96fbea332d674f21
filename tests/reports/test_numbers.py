"""How numbers are written."""

import math

import pytest

from attnbench.reports.numbers import seconds_written, setting_written, written


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "1", "0"),
        (0.000234, "1", "0.00023"),
        (0.0000028, "1", "2.8e-6"),
        (0.451, "1", "0.451"),
        (34.123, "1", "34.1"),
        (1234.5, "1", "1,234"),
        (63120.0, "tokens/s", "63.1k"),
        (950.0, "tokens/s", "950.0"),
        (2_500_000.0, "tokens/s", "2.50M"),
        (512.0, "B", "512 B"),
        (12595200.0, "B", "12.0 MiB"),
        (312448.0, "parameters", "312,448"),
        (17.5, "keys", "17.5"),
        (math.inf, "1", "not finite"),
    ],
)
def test_a_number_is_written_with_the_digits_that_compare(value, unit, text):
    assert written(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2048, "2,048"), (2048.0, "2,048"), (0.001, "0.001"), (True, "yes"), ("web-bible", "web-bible")]
)
def test_a_setting_is_written_as_a_reader_expects_it(value, text):
    assert setting_written(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (12.4, "12 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 05 min")]
)
def test_a_duration_is_written_in_its_largest_units(seconds, text):
    assert seconds_written(seconds) == text
