"""Whatever schedule there is can be drawn, written as a trace, read back, and reported on."""

import numpy as np
import pytest

from pipesim.metrics import summarize
from pipesim.schedules.catalogue import FAMILIES
from pipesim.viz.chart import chart
from pipesim.viz.page import html
from pipesim.viz.report import Report, report_html
from pipesim.viz.trace import trace_json
from tests.viz.cases import timeline
from tests.viz.test_payload import there_and_back
from tests.viz.test_trace import faults


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name: str) -> None:
    made = timeline(name, 4, 8, memory=True)
    found = summarize(made)
    expected, actual = there_and_back(made)
    np.testing.assert_equal(actual, expected)
    assert faults(trace_json(made)) == []
    assert made.name in html(chart(made, found, picture=False))
    assert made.name in report_html(Report(made, found))


@pytest.mark.parametrize("times", ["F=0,B=0", "F=1ns,B=2ns", "F=10000,B=30000"])
def test_times_of_any_size(times: str) -> None:
    made = timeline("1f1b", 2, 2, times=times)
    expected, actual = there_and_back(made)
    np.testing.assert_equal(actual, expected)
    assert faults(trace_json(made)) == []
    for most_bars in (0, 100):
        html(chart(made, summarize(made), most_bars=most_bars))
    report_html(Report(made, summarize(made)))
