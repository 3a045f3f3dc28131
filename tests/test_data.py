"""The records that come with the package: what they hold, and names that are none."""

import re

import pytest

from mha.data import load


def test_relations_marks_one_query_and_one_key_a_sentence():
    sentences = load("relations")["sentences"]
    assert len(sentences) == 4
    for relation, ten in sentences.items():
        assert len(set(ten)) == 10, relation
        for text in ten:
            assert len(re.findall(r"<\w+>", text)) == len(re.findall(r"\[\w+\]", text)) == 1, text


def test_each_call_gives_a_copy():
    load("relations").clear()
    assert sorted(load("relations")) == ["about", "sentences"]


@pytest.mark.parametrize(
    "name", ["relation", "", "relations.json", "Relations", "../data/relations", "./relations"]
)
def test_what_is_no_name_is_refused(name):
    message = f"there is no record {name!r}; there are leak, recall, relations"
    with pytest.raises(ValueError, match=re.escape(message)):
        load(name)


@pytest.mark.parametrize("name", [3, None, b"relations", ["relations"]])
def test_a_name_is_a_str(name):
    with pytest.raises(TypeError, match=re.escape(f"name={name!r} is not a str")):
        load(name)
