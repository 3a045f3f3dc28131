"""Set-up of the whole suite: one torch thread a worker, and a run in which nothing may skip."""

import os

import pytest

# Read by torch when it is first imported, and inherited by the notebooks' kernels.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With MHA_NO_SKIP=1 (as in .ci/run) a skipped test fails."""
    report = yield
    if os.environ.get("MHA_NO_SKIP") == "1" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"MHA_NO_SKIP=1 lets nothing skip: {reason}"
    return report
