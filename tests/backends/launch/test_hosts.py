"""Host lists in three spellings, and what is wrong with a bad one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.backends.launch.hosts import BadHosts, Host, expand_nodelist, parse_hostfile, parse_hosts
from pipesim.errors import PipesimError


def test_option() -> None:
    assert parse_hosts("a:8, b-1.x:4") == (Host("a", 8), Host("b-1.x", 4))
    assert parse_hosts("localhost:2,localhost:2") == (Host("localhost", 2), Host("localhost", 2))


def test_hostfile() -> None:
    text = "# cluster\nnode1 slots=8\n\n  node2   slots=4  # the old one\n"
    assert parse_hostfile(text, "hosts") == (Host("node1", 8), Host("node2", 4))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ("node1",)),
        ("node[01-03,7]", ("node01", "node02", "node03", "node7")),
        ("a[1-2],b,c[3]", ("a1", "a2", "b", "c3")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("gpu[098-101]", ("gpu098", "gpu099", "gpu100", "gpu101")),
    ],
)
def test_slurm_node_list(text: str, names: tuple[str, ...]) -> None:
    assert expand_nodelist(text) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node[1-3", "a bracket is not closed"),
        ("node1-3]", "brackets do not match"),
        ("node[[1]]", "brackets do not match"),
        ("node[3-1]", "does not count up"),
        ("node[a-b]", "not a range of numbers"),
        ("node[1-999999999]", "does not count up"),
        ("", "'' is not a host name"),
        ("a,,b", "'' is not a host name"),
        ("node; rm -rf /", "is not a host name"),
    ],
)
def test_bad_node_list(text: str, says: str) -> None:
    with pytest.raises(BadHosts, match=says):
        expand_nodelist(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a", "'a' has no number of slots"),
        ("a:0", "'0' slots on a: at least 1"),
        ("a:x", "'x' slots"),
        ("a:8,a:8", "a comes twice"),
        ("-oProxyCommand=x:8", "is not a host name"),
        ("a:8,", "'' has no number of slots"),
    ],
)
def test_bad_option(text: str, says: str) -> None:
    with pytest.raises(BadHosts, match=says):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no host in it"),
        ("node1", "line 1: 'node1' is not a host and its slots"),
        ("node1 slots=8\nnode2 slot=8", "line 2"),
        ("node1 slots=", "at least 1"),
        ("node1 slots=8 max=9", "line 1"),
        ("$(reboot) slots=8", "is not a host name"),
    ],
)
def test_bad_hostfile(text: str, says: str) -> None:
    with pytest.raises(BadHosts, match=says):
        parse_hostfile(text, "hosts")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for read in (parse_hosts, expand_nodelist, lambda one: parse_hostfile(one, "hosts")):
        with suppress(PipesimError):
            assert read(text)
