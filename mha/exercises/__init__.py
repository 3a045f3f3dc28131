"""Exercises of the chapters: `check("06.2", answer)` says what is right, or names the mistake."""

from mha.exercises import ch01, ch02, ch03, ch04, ch05, ch06, ch07, ch08
from mha.exercises.frame import Unanswered, Verdict, Wrong

CHECKS = {
    **ch01.CHECKS,
    **ch02.CHECKS,
    **ch03.CHECKS,
    **ch04.CHECKS,
    **ch05.CHECKS,
    **ch06.CHECKS,
    **ch07.CHECKS,
    **ch08.CHECKS,
}

__all__ = ["CHECKS", "Verdict", "check"]


def check(number, answer):
    """Check an answer to one exercise.

    Parameters
    ----------
    number : str
        Chapter and exercise, as printed in the book: ``"06.2"``.
    answer : object
        A number, list, array, tensor or function, as the exercise asks; `...` means "not yet".

    Returns
    -------
    Verdict
        Its `right` is True, False, or None where nothing was answered; shown as one line.

    Raises
    ------
    ValueError
        If there is no such exercise.

    Examples
    --------
    >>> check("06.2", ...)
    06.2: no answer yet. Replace the ... and run the cell again.
    """
    if number not in CHECKS:
        raise ValueError(f"there is no exercise {number!r}; there are {', '.join(CHECKS)}")
    parts = answer if isinstance(answer, (list, tuple)) else (answer,)
    try:
        if any(part is Ellipsis for part in parts):
            raise Unanswered
        praise = CHECKS[number](answer)
    except Unanswered:
        return Verdict(number, None, "no answer yet. Replace the ... and run the cell again.")
    except Wrong as mistake:
        return Verdict(number, False, f"not yet. {mistake}")
    return Verdict(number, True, f"right. {praise}")
