"""What is varied, and the values it takes."""

from __future__ import annotations

import pytest

from pipesim.plan.sweep import BadVary, Vary, combinations, parse_vary


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("microbatches=8:256:x2", ("8", "16", "32", "64", "128", "256")),
        ("tp=2:9:3", ("2", "5", "8")),
        ("pp=1:3", ("1", "2", "3")),
        ("schedule=1f1b,zb-v", ("1f1b", "zb-v")),
        ("--virtual=2,4:6", ("2", "4", "5", "6")),
        ("costs=F=1,B=2|F=2,B=4", ("F=1,B=2", "F=2,B=4")),
    ],
)
def test_values(text, values):
    assert parse_vary(text).values == values


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("microbatches", "not a name and values"),
        ("m=", "not a name and values"),
        ("m=1,,2", "a value is empty"),
        ("m=1,2,1", "a value is there twice"),
        ("m=8:4", "4 is less than 8"),
        ("m=1:8:x1", "steps of x1 from 1 never end"),
        ("m=0:8:x2", "steps of x2 from 0 never end"),
        ("m=1:100000", "more than 10000 values"),
    ],
)
def test_what_cannot_be_varied(text, reason):
    with pytest.raises(BadVary, match=reason):
        parse_vary(text)


def test_combinations_are_all_of_them_in_order():
    found = list(combinations([Vary("a", ("1", "2")), Vary("b", ("x", "y"))]))
    assert found == [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}]
    with pytest.raises(BadVary, match="it is varied twice"):
        list(combinations([Vary("a", ("1",)), Vary("a", ("2",))]))
    with pytest.raises(BadVary, match="1,000,000 combinations are more than 10,000"):
        list(combinations([Vary(name, tuple(map(str, range(100)))) for name in "abc"]))
