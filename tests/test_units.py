"""Quantities go in and out as people write them, and what is none of them is refused by name."""

import math
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.units import (
    BadQuantity,
    format_bytes,
    format_bytes_per_s,
    format_count,
    format_flops,
    format_fraction,
    format_seconds,
    parse_bytes,
    parse_bytes_per_s,
    parse_flops,
    parse_fraction,
    parse_seconds,
)

Parse = Callable[[str | float], float]


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_seconds, "18.522ms", 0.018522),
        (parse_seconds, "1.2e-3", 0.0012),
        (parse_seconds, "3us", 3e-6),
        (parse_seconds, "3 µs", 3e-6),
        (parse_seconds, "2s", 2.0),
        (parse_seconds, " .5 s ", 0.5),
        (parse_seconds, "7.", 7.0),
        (parse_seconds, "10min", 600.0),
        (parse_seconds, "50000h", 1.8e8),
        (parse_seconds, "1E3ns", 1e-6),
        (parse_seconds, "0", 0.0),
        (parse_seconds, 3, 3.0),
        (parse_bytes, "60GB", 60e9),
        (parse_bytes, "4MiB", 4 * 2.0**20),
        (parse_bytes, "64kB", 64e3),
        (parse_bytes, "4096", 4096.0),
        (parse_bytes_per_s, "50GB/s", 50e9),
        (parse_bytes_per_s, "400Gb/s", 50e9),
        (parse_bytes_per_s, "400Gbps", 50e9),
        (parse_bytes_per_s, "100 Mbit/s", 12.5e6),
        (parse_bytes_per_s, "1GiB/s", 2.0**30),
        (parse_flops, "989TFLOP/s", 989e12),
        (parse_flops, "312TFLOPS", 312e12),
        (parse_fraction, "5%", 0.05),
        (parse_fraction, "150 %", 1.5),
        (parse_fraction, "0.05", 0.05),
    ],
)
def test_parse(parse: Parse, text: str | float, expected: float) -> None:
    assert parse(text) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a number, with or without a unit"),
        ("ms", "not a number, with or without a unit"),
        ("nan", "not a number, with or without a unit"),
        ("inf", "not a number, with or without a unit"),
        ("1_000", "unknown unit '_000'"),
        ("1,5ms", "unknown unit ',5ms'"),
        ("0x10", "unknown unit 'x10'"),
        ("5m", "unknown unit 'm' (did you mean ms, min"),
        ("5 Ms", "unknown unit 'Ms'"),
        ("٣s", "not a number"),
        (None, "not a number, with or without a unit"),
        (True, "not a number, with or without a unit"),
        ([1], "not a number, with or without a unit"),
        ("1e999", "must be finite"),
        ("1e308h", "must be finite"),
        (math.nan, "must be finite"),
        (-math.inf, "must be finite"),
        (10**400, "must be finite"),
        ("-1ms", "must not be negative"),
        (-0.5, "must not be negative"),
    ],
)
def test_refuses(text: str, reason: str) -> None:
    with pytest.raises(BadQuantity, match=re.escape(reason)):
        parse_seconds(text)


def test_what_may_be_negative_or_zero_is_said() -> None:
    assert parse_seconds("-1ms", signed=True) == -0.001
    assert parse_seconds("0ms") == 0.0
    with pytest.raises(BadQuantity, match="must be more than 0"):
        parse_seconds("0ms", positive=True)


def test_message_names_value_rule_and_what_would_work() -> None:
    with pytest.raises(BadQuantity) as caught:
        parse_bytes_per_s("50GB", name="link.bandwidth")
    assert str(caught.value) == (
        "link.bandwidth='50GB': unknown unit 'GB' (did you mean GB/s, GiB/s?), e.g. 50GB/s or 400Gb/s"
    )


def test_message_of_a_huge_value_is_short() -> None:
    with pytest.raises(BadQuantity) as caught:
        parse_bytes("9" * 100_000 + "x" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_seconds(0.018522), "18.52 ms"),
        (format_seconds(0.00099996), "1 ms"),
        (format_seconds(3e-6), "3 µs"),
        (format_seconds(5e-12), "0.005 ns"),
        (format_seconds(0), "0 s"),
        (format_seconds(-0.5), "-500 ms"),
        (format_seconds(119.5), "119.5 s"),
        (format_seconds(600), "10 min"),
        (format_seconds(9000), "2.5 h"),
        (format_seconds(86400 * 12.3456), "12.35 d"),
        (format_seconds(86400 * 12345.0), "12345 d"),
        (format_seconds(math.nan), "nan s"),
        (format_seconds(math.inf), "inf min"),
        (format_bytes(0), "0 B"),
        (format_bytes(60.25e9, digits=3), "60.2 GB"),
        (format_bytes(999.96e6), "1 GB"),
        (format_bytes_per_s(450e9), "450 GB/s"),
        (format_flops(412.34e12), "412.3 TFLOP/s"),
        (format_fraction(0.04347), "4.35 %"),
        (format_fraction(0), "0 %"),
        (format_count(12), "12"),
        (format_count(1.5), "1.5"),
        (format_count(12345.4), "12,345"),
        (format_count(70.55e9), "70.55 G"),
    ],
)
def test_format(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("form", "parse"),
    [
        (format_seconds, parse_seconds),
        (format_bytes, parse_bytes),
        (format_bytes_per_s, parse_bytes_per_s),
        (format_flops, parse_flops),
        (format_fraction, parse_fraction),
    ],
)
@given(quantity=st.floats(min_value=1e-10, max_value=1e17))
def test_what_is_printed_reads_back(
    form: Callable[[float], str], parse: Callable[[str], float], quantity: float
) -> None:
    assert parse(form(quantity)) == pytest.approx(quantity, rel=6e-3)


@given(st.text(max_size=20) | st.floats() | st.integers() | st.none() | st.binary())
def test_anything_is_a_quantity_or_a_clear_error(value: object) -> None:
    with suppress(BadQuantity):
        assert parse_seconds(value) >= 0  # type: ignore[arg-type]
