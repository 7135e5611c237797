"""Names of topics, patterns over them, and lists of patterns."""

import pytest

from vivum.core.errors import UsageError
from vivum.core.topic_names import TopicPatterns, check_name, check_pattern, matches

BAD_PATTERNS = ["/a*", "/**/a", "/***", "*", "swx", "/swx/a*", "/swx/", "/swx//a", "/" + "a" * 255]


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("/swx/*", "/swx/NESN", True),
        ("/swx/*", "/swx/a/b", False),
        ("/swx/**", "/swx/a/b", True),
        ("/swx/**", "/swx", False),
        ("/**", "/a", True),
        ("/*/b", "/a/b", True),
        ("/*/b", "/a/c", False),
        ("/a.b", "/axb", False),
    ],
)
def test_a_star_is_one_part_and_two_are_the_rest(pattern: str, name: str, expected: bool):
    assert matches(check_pattern(pattern), check_name(name)) is expected


@pytest.mark.parametrize("name", ["", "a", "/", "/a/", "//a", "/a*", "/\n", "/" + "ä" * 128])
def test_bad_names_are_refused(name: str):
    with pytest.raises(UsageError):
        check_name(name)


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_bad_patterns_are_refused_and_match_nothing(pattern: str):
    with pytest.raises(UsageError):
        check_pattern(pattern)
    with pytest.raises(UsageError):
        TopicPatterns(f"/good, {pattern}")
    assert not any(matches(pattern, name) for name in ("/a", "/b/a", "/swx", "/wx", "/swx/a", pattern))


@pytest.mark.parametrize(
    ("patterns", "chosen", "others"),
    [
        ("/swx/NESN", ["/swx/NESN"], ["/swx/NES", "/swx/NESN/x", "/swx"]),
        ("/swx/*", ["/swx/NESN"], ["/swx", "/swx/a/b", "/swxx/a"]),
        ("/a, /b/*", ["/a", "/b/c"], ["/b", "/a/c"]),
        ("/*/x.y,", ["/a/x.y"], ["/a/xzy"]),
    ],
)
def test_a_list_chooses_what_one_of_its_patterns_matches(patterns: str, chosen: list[str], others: list[str]):
    assert TopicPatterns(patterns).chosen([*chosen, *others]) == chosen


@pytest.mark.parametrize("text", ["", " , "])
def test_a_list_without_a_pattern_is_refused(text: str):
    with pytest.raises(UsageError, match="no topics are named"):
        TopicPatterns(text)


def test_a_list_without_wildcards_names_its_topics():
    assert TopicPatterns("/a, /b/c").exact == {"/a", "/b/c"}
    assert TopicPatterns("/a, /b/*").exact is None
    assert TopicPatterns("/a, /**").is_everything
