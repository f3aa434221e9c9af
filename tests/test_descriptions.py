"""Entries ranked by the words of their titles, keywords and entities."""

from langchain_lookup_knowledge.descriptions import DescriptionRanking
from langchain_lookup_knowledge.documents import Entry


def entry(title, keywords=(), entities=(), text="unread"):
    return Entry(f"{title}.md", title, tuple(keywords), ("Cat",), tuple(entities), text)


ENTRIES = [
    entry("Publish a port", ["container port"], ["iptables"]),
    entry("Limit the memory of a container"),
    entry("Containers", text="port port port"),
    entry("证书续期", ["TLS 证书"]),
]
RANKING = DescriptionRanking(ENTRIES)


def titles(query, limit=10):
    return [found["title"] for found in RANKING.rank(query, limit)]


def test_the_entry_with_more_and_rarer_words_is_first():
    assert titles("how much memory may a container take") == [
        "Limit the memory of a container",
        "Containers",
        "Publish a port",
    ]


def test_only_descriptions_are_read_and_stop_words_say_nothing():
    assert titles("port") == ["Publish a port"]
    assert titles("of the unread") == []
    ranking = DescriptionRanking([entry("What does the cat eat"), entry("Billing")])
    assert [found["title"] for found in ranking.rank("How does billing work", 9)] == ["Billing"]


def test_plural_case_and_accents_do_not_matter():
    assert titles("PÖRTS") == ["Publish a port"]


def test_scripts_without_blanks_are_matched_by_pairs_of_characters():
    assert titles("如何续期证书") == ["证书续期"]
    assert titles("明证") == []


def test_each_says_by_which_words_of_the_query_it_was_found():
    (found,) = RANKING.rank("Memory limits, please", 1)
    assert found == {
        "entry_id": "Limit the memory of a container.md",
        "title": "Limit the memory of a container",
        "domains": ["Cat"],
        "words": ["Memory", "limits"],
    }


def test_at_most_so_many_and_none_of_no_entries():
    assert len(RANKING.rank("container", 2)) == 2
    assert DescriptionRanking([]).rank("container", 2) == []


def test_a_description_without_a_word_is_found_by_nothing():
    assert DescriptionRanking([entry("---")]).rank("---", 5) == []
