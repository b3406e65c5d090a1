"""The runner of the documentation's blocks notices what is wrong; else all pages would be right for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, commands
from tests.docs.compare import differs
from tests.docs.runner import run_page

PAGE = """\
Text.

<!-- not run: needs two nodes -->
```sh
pipesim launch
```

- in a list:

    ```python title="a.py"
    x = 1
    ```

```console
$ pipesim schedule 1f1b \\
    -p 2 -m 1   # a comment
F0 B0
F0 B0
$ true
```
"""


def test_blocks_of_a_page() -> None:
    assert blocks(PAGE) == [
        Block(4, "sh", "", "pipesim launch\n", {"not run": "needs two nodes"}),
        Block(10, "python", "a.py", "x = 1\n", {}),
        Block(14, "console", "", "$ pipesim schedule 1f1b \\\n    -p 2 -m 1   # a comment\nF0 B0\nF0 B0\n$ true\n", {}),
    ]
    assert [(one.text, one.shown) for one in commands(blocks(PAGE)[2])] == [
        ("pipesim schedule 1f1b -p 2 -m 1", ["F0 B0", "F0 B0"]),
        ("true", None),
    ]


def test_a_page_that_is_right(tmp_path: Path) -> None:
    run_page(PAGE, tmp_path)
    assert tmp_path.joinpath("a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```console\n$ pipesim schedule 1f1b -p 2 -m 1\nF0 B1\n```", "shown:   F0 B1\nprinted: F0 B0"),
        ("```console\n$ pipesim schedule 1f1b -p 2 -m 1\nF0 B0\n```", "shown:   .nothing more.\nprinted: F0 B0"),
        ("```sh\npipesim schedule 1f1c -p 2 -m 1\n```", "ended with status 2, not 0"),
        ("```sh\nfalse\n```", "ended with status 1, not 0"),
        ('```python\nprint(1)\n```\n```text title="prints"\n2\n```', "shown:   2\nprinted: 1"),
    ],
)
def test_a_page_that_is_wrong(block: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=message):
        run_page(block, tmp_path)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["│ step │ 30.64% │"], ["│ step      │ 30.63% │", ""], True),
        (["│ step │ 30.64% │"], ["│ step │ 31.64% │"], False),
        (["…", "two", "…"], ["one", "two", "three"], True),
        (["…", "four", "…"], ["one", "two", "three"], False),
        (["one two…"], ["one two three"], True),
        (["one"], ["one", "two"], False),
        (["4 ranks of 1f1b"], ["4 ranks of 2f2b"], False),
    ],
)
def test_what_counts_as_the_same(shown: list[str], printed: list[str], same: bool) -> None:
    assert (differs(shown, printed, tolerance=0.002) is None) == same


def test_where_output_varies_only_words_count() -> None:
    assert differs(["step 590.4 ms, -1.3%"], ["step 1.2 s, +4%"], tolerance=0.0, numbers=False) is None
    assert differs(["step 590.4 ms"], ["stop 590.4 ms"], tolerance=0.0, numbers=False) is not None
