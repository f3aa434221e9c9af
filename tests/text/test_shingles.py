"""Which texts count as nearly equal."""

import pytest

from langchain_lookup_knowledge.text.shingles import nearly_equal

PAGE = " ".join(f"word{number}" for number in range(100))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PAGE, PAGE, True),
        (PAGE, PAGE.replace("word99", "other"), True),
        (PAGE, PAGE.replace("word50", "other"), True),
        (PAGE, PAGE.replace("word50", "other").replace("word70", "other"), False),
        (PAGE, PAGE + " " + PAGE.upper(), False),
        (PAGE, PAGE.upper().replace(" ", ",\n"), True),
        ("three short words", "three short words", True),
        ("three short words", "other short words", False),
        ("", "", False),
        ("-", "-", False),
        (PAGE * 1000, PAGE * 500, False),
    ],
)
def test_nearly_equal(one, other, expected):
    assert nearly_equal(one, other) is expected
    assert nearly_equal(other, one) is expected
