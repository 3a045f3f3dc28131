"""What all checks share: what counts as no answer, how numbers are read and compared."""

import pytest
import torch

from mha.exercises import CHECKS, check
from mha.exercises.frame import Wrong, as_array, compare


def test_nothing_answered_is_neither_right_nor_wrong():
    unanswered = [(number, ...) for number in CHECKS]
    unanswered += [("02.2", lambda *_: ...), ("02.3", (..., ...)), ("06.1", lambda *_: ...)]
    for number, answer in unanswered:
        verdict = check(number, answer)
        assert verdict.right is None
        assert repr(verdict) == (
            f"{number}: no answer yet. Replace the ... and run the cell again.")


def test_an_unknown_exercise_is_refused():
    with pytest.raises(ValueError, match=r"there is no exercise '99\.1'; there are 01\.1, 01\.2"):
        check("99.1", 1)


def test_compare_accepts_within_the_tolerance_only():
    compare(1.05, 1.0, {}, tolerance=0.1)
    with pytest.raises(Wrong, match=r"the largest difference is 0\.2"):
        compare(1.2, 1.0, {}, tolerance=0.1)


def test_numbers_are_read_from_anything_that_holds_them():
    assert as_array([torch.tensor(1.0, requires_grad=True), 2]).tolist() == [1.0, 2.0]
    with pytest.raises(Wrong, match="this dict can't be read as numbers"):
        as_array({"a": 1})
