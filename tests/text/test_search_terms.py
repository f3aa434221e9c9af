"""Terms of a text: words that compare alike, and exact things that stay whole."""

import pytest

from langchain_lookup_knowledge.text.search_terms import (
    inner_numbers,
    is_exact,
    search_terms,
    written_terms,
)


@pytest.mark.parametrize(
    ("text", "thing"),
    [
        ("error E-4711.", "e-4711"),
        ("since v2.14.3,", "2.14.3"),
        ("on 10.0.0.1:8080", "10.0.0.1"),
        ("on 10.0.0.1:8080", "10.0.0.1:8080"),
        ("at fe80::1", "fe80::1"),
        ("device 00:1B:2c:3d:4e:5f", "00:1b:2c:3d:4e:5f"),
        ("on 2026-01-15.", "2026-01-15"),
        ("at 14:30", "14:30"),
        ("see 4.2.1 there", "4.2.1"),
        ("edit /etc/docker/daemon.json", "daemon.json"),
        ("set max_file_size", "max_file_size"),
        ("set `queue.max_size`", "queue.max_size"),
        ("write to jane.doe@example.org", "jane.doe@example.org"),
        ("ERR_POOL_LOCKED", "err_pool_locked"),
    ],
)
def test_exact_things_are_terms_of_their_own(text, thing):
    assert thing in search_terms(text)
    assert is_exact(thing)


def test_a_version_is_not_another_with_the_same_numbers():
    assert "2.3.14" not in search_terms("2.14.3")
    assert search_terms("v2.14.3") == search_terms("2.14.3") == ["2", "14", "3", "2.14.3"]
    assert search_terms("v8 of /api/v1/x") == ["v8", "api", "v1", "api/v1/x"]
    assert search_terms("vpn.example")[-1] == "vpn.example"


def test_parts_of_exact_things_are_terms_too():
    assert search_terms("max_file_size") == ["max", "file", "size", "max_file_size"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Refunds of cafés", ["refund", "cafe"]),
        ("退款多久", ["退款", "款多", "多久"]),
        ("税", ["税"]),
        ("a I x 7", ["7"]),
        ("", []),
        ("foo-退款", ["foo", "退款"]),
        ("end. Next", ["end", "next"]),
    ],
)
def test_words_come_folded(text, terms):
    assert search_terms(text) == terms


def test_terms_are_known_as_they_are_written():
    assert written_terms("Refunds since v2.14.3")["2.14.3"] == "v2.14.3"
    assert written_terms("Refunds")["refund"] == "Refunds"
    assert written_terms("退款多")["款多"] == "款多"


def test_a_run_without_end_is_known_by_its_parts():
    assert max(map(len, search_terms("ab-" * 1000 + "c"))) == 2


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("changed in v2.14.3", {"2", "14", "3"}),
        ("page 14 of 2.14.3", {"2", "3"}),
        ("2.14.3, page 14", {"2", "3"}),
        ("2.14.3 and 14:30", {"2", "14", "3", "30"}),
        ("page 14", set()),
        ("第14章 2.14", {"2"}),
        ("", set()),
    ],
)
def test_a_number_that_a_text_names_apart_is_not_only_part_of_a_version(text, numbers):
    assert inner_numbers(text) == numbers
