"""What counts as a word, in the index, in a query and in the attribution."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin import MemTier
from memtier_plugin.text import tokenizer as tokenizing
from memtier_plugin.text.tokenizer import (
    MAX_WORDS,
    Tokenizer,
    first_plain_words,
    ngrams,
    plain_words,
)
from tests.cases import each_case

ANYTHING = st.text(st.characters())  # lone surrogates and NUL too
ENGLISH = Tokenizer("english")
PLAIN = Tokenizer("none")
SCRIPTS = ("北京市鍵", "ラメアン", "をにこれ", "서울집")  # Han, Katakana, Hiragana, Hangul


@pytest.fixture
def memory(home: Path) -> Iterator[MemTier]:
    """Return an empty memory that keeps texts as they are."""
    with MemTier.open(home, settings={"redaction.enabled": False}) as memory:
        yield memory


def finds(memory: MemTier, text: str, query: str) -> bool:
    """Tell whether a text, once recorded, is found by a query's words."""
    [entry] = memory.record([{"role": "user", "content": text}], session_id="s")
    reader = memory.store.reader()
    terms = Counter(memory.store.tokenizer.words(query))
    match = reader.match_words(reader.scopes("main", None), terms, 50_000)
    return reader.rows_of([entry.id])[entry.id] in match.scores()


@given(ANYTHING)
def test_any_text_has_words(text: str) -> None:
    """No text raises, and every word is casefolded, not empty and without white space."""
    for word in [*ENGLISH.words(text), *PLAIN.words(text), *plain_words(text), *ngrams(text)]:
        assert word == word.casefold()
        assert word.split() == [word]


@given(ANYTHING)
def test_words_are_a_function_of_the_text(text: str) -> None:
    """Another tokenizer, another time and another thread give the same words."""
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(ENGLISH.words, text).result()
    assert ENGLISH.words(text) == again == Tokenizer("english").words(text)
    assert ngrams(text) == ngrams(text)


@given(ANYTHING)
def test_every_plain_word_is_within_an_index_word(text: str) -> None:
    """Without stemming and stop words, the index has every plain word, whole or in its parts."""
    index_words = {part for word in PLAIN.words(text) for part in plain_words(word)}
    assert {part for word in plain_words(text) for part in plain_words(word)} <= index_words


@given(ANYTHING, st.integers(0, 5))
def test_the_first_words_are_those_of_the_whole_text(text: str, count: int) -> None:
    """Whoever needs only the first words gets the same ones, in a short or a long text."""
    assert first_plain_words(text, count) == plain_words(text)[:count]


@given(text=st.text(st.characters(), min_size=1).filter(ENGLISH.words))
def test_a_text_finds_itself(memory: MemTier, text: str) -> None:
    """A recorded text that has words is found by itself as a query."""
    assert finds(memory, text, text)


@each_case(
    ("text", "identifier", "parts"),
    [
        ("pve-01", "pve-01", ["pve", "01"]),
        ("foo_bar", "foo_bar", ["foo", "bar"]),
        ("v2.3.1", "v2.3.1", ["v2", "3", "1"]),
        ("src/app/main.py", "src/app/main.py", ["src", "app", "main", "py"]),
        ("ada@example.org", "ada@example.org", ["ada", "example", "org"]),
        ("parseHTTPResponse", "parsehttpresponse", ["parse", "http", "response"]),
        ("https://example.org/a-b", "https://example.org/a-b", ["https", "example", "b"]),
    ],
)
def test_identifiers_whole_and_in_parts(text: str, identifier: str, parts: list[str]) -> None:
    """An identifier, version, address or path is found as it stands and by each of its parts."""
    words = PLAIN.words(f"see {text}, then go")
    assert identifier in words
    assert set(parts) <= set(words)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The server pve-01 is down", "PVE-01"),
        ("The server pve-01 is down", "pve"),
        ("We meet in Cafés", "cafe\u0301s"),  # composed and decomposed
        ("ＡＢＣ and the ﬁle", "abc file"),  # full width, ligature
        ("Die Straße", "STRASSE"),
        ("He was running", "runs"),
        ("我住在北京市", "北京"),
        ("東京タワーに行った", "東京"),
        ("서울에서 만나요", "서울"),
        ("नमस्ते दुनिया", "दुनिया"),
        ("สวัสดี ครับ", "ครับ"),
        ("Ada’s bike", "ada"),
        ("left\ud800right", "right"),
        ("nul\0byte", "byte"),
        ("done 👍🏽 already", "already 👍"),
    ],
)
def test_found_by_another_form(memory: MemTier, text: str, query: str) -> None:
    """A word is found in another case, form or inflection, in every script."""
    assert finds(memory, text, query)


def test_two_letter_chinese() -> None:
    """Han gives overlapping pairs and each character, so that short words are found inside."""
    assert {"北京", "我住"} <= set(PLAIN.words("我住在北京市"))
    assert PLAIN.words("北京") == ["北", "北京", "京"]
    assert PLAIN.words("京") == ["京"]
    assert {"京", "北京"} <= ngrams("我住在北京市")


@each_case(
    ("text", "expected"),
    [
        ("鍵を", ["鍵"]),
        ("塾に通う", ["塾", "通"]),
        ("東京タワー", ["東", "東京", "京", "タワ", "ワー"]),
        ("らーめん", ["らー", "ーめ", "めん"]),
        ("これ", ["これ"]),
        ("に", []),
        ("ア", ["ア"]),
        ("집", ["집"]),
        ("서울에", ["서울", "울에"]),
        ("韓国어", ["韓", "韓国", "国", "어"]),
    ],
)
def test_unspaced_words_end_where_the_script_changes(text: str, expected: list[str]) -> None:
    """No pair crosses a change of script; one character is a word, but not one Hiragana."""
    assert PLAIN.words(text) == expected


@given(st.text(st.sampled_from("".join(SCRIPTS))))
def test_unspaced_words_are_of_one_script(text: str) -> None:
    """Whatever the run, its words are its Han characters and the neighbours of one script."""
    script = [next(n for n, some in enumerate(SCRIPTS) if c in some) for c in text]
    places = range(len(text) - 1)
    pairs = [text[n : n + 2] for n in places if script[n] == script[n + 1]]
    words = PLAIN.words(text)
    assert [word for word in words if len(word) == 2] == pairs
    single = [word for word in words if len(word) != 2]
    assert [word for word in single if word in SCRIPTS[0]] == [c for c in text if c in SCRIPTS[0]]
    assert not {*single} & {*SCRIPTS[2]}


def test_hangul_gives_pairs() -> None:
    """Hangul gives pairs, so that a noun is found with a particle after it."""
    assert {"서울", "울에", "에서"} <= set(PLAIN.words("서울에서"))


@each_case("text", ["नमस्ते", "क्षत्रिय", "ज़रूरी", "বাংলাদেশ", "வணக்கம்"])
def test_marks_stay_in_their_word(text: str) -> None:
    """A word is not torn at its vowel signs and viramas."""
    assert len(PLAIN.words(text)) == len(plain_words(text)) == 1


def test_thai_is_found_in_part_by_grams() -> None:
    """Thai, which has no spaces and no pairs here, still meets by n-grams."""
    assert "สวัสดีครับ" in PLAIN.words("สวัสดีครับ")
    assert len(ngrams("สวัสดีครับ") & ngrams("ครับ")) >= 2


@each_case("text", ["", " \n\t", "🎉🎉", "?!…", "\ud800\udfff", "\0", "the of and"])
def test_texts_without_words(text: str) -> None:
    """Emoji, punctuation, broken characters and function words alone give no index word."""
    assert ENGLISH.words(text) == []


@pytest.mark.parametrize("text", ["I'm", "don’t", "we'll", "can't"])
def test_contractions_are_function_words(text: str) -> None:
    """A contraction leaves no crumbs behind."""
    assert ENGLISH.words(f"{text} swim") == ["swim"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text", ["x" * 2**20, "ab " * 2**18, "a-" * 2**19, "北" * 2**20, "é " * 2**19]
)
def test_a_megabyte(text: str) -> None:
    """A text of any size gives a bounded number of words and n-grams."""
    assert len(ENGLISH.words(text)) <= MAX_WORDS
    assert len(ngrams(text)) <= 8 * MAX_WORDS + 2


@given(ANYTHING)
def test_grams_are_short(text: str) -> None:
    """N-grams are trigrams with the edges marked; unspaced scripts give characters and pairs."""
    for gram in ngrams(text):
        assert 1 <= len(gram) <= 3


def test_grams_meet_typos_and_accents() -> None:
    """A typo, a missing accent and a part of a compound share n-grams with the word."""
    assert len(ngrams("Kubernetes") & ngrams("Kubernets")) >= 7
    assert ngrams("café") == ngrams("cafe")
    assert {"sch", "chi", "hif", "iff"} <= ngrams("Dampfschifffahrt") & ngrams("Schiff")


@pytest.mark.parametrize("month", range(1, 13))
def test_dates_are_found_by_their_words(month: int, day: Callable[..., datetime]) -> None:
    """The day, month name and year of a date are words as a question has them."""
    moment = day().replace(month=month)
    query_words = ENGLISH.words(f"What happened on {moment.day} {moment:%B %Y}?")
    assert set(ENGLISH.date_words(moment)) <= set(query_words)


def test_language() -> None:
    """Words are stemmed by the language set, and function words are left out in English only."""
    assert Tokenizer("german").words("die Häuser") == ["die", "haus"]
    assert ENGLISH.words("the houses") == ["hous"]
    assert PLAIN.words("the houses") == ["the", "houses"]
    assert len({t.fingerprint for t in (ENGLISH, PLAIN, Tokenizer("german"))}) == 3


@pytest.mark.parametrize(
    ("word", "inflected"),
    [("книга", "книгами"), ("лошадь", "лошадей"), ("كتاب", "الكتاب"), ("लड़का", "लड़के")],
)
def test_other_scripts_have_stems_of_their_own(word: str, inflected: str) -> None:
    """Russian, Arabic and Hindi are stemmed beside a language in another script, vowels and all."""
    for tokenizer in (ENGLISH, Tokenizer("german")):
        assert tokenizer.words(word) == tokenizer.words(inflected) != [inflected]
    assert PLAIN.words(word) != PLAIN.words(inflected)
    assert ENGLISH.words(f"houses {inflected} naïve") == [
        "hous",
        *ENGLISH.words(inflected),
        *ENGLISH.words("naïve"),
    ]


@pytest.mark.parametrize(
    ("language", "word"), [("serbian", "књигама"), ("nepali", "केटाहरूलाई"), ("russian", "книгами")]
)
def test_the_language_set_stems_its_own_script(language: str, word: str) -> None:
    """What is written in the script of the language set is stemmed by that language."""
    assert Tokenizer(language).words(word) == [Stemmer.Stemmer(language).stemWord(word)] != [word]


def test_identifiers_are_not_stemmed() -> None:
    """A word with a digit in it is no word of a language."""
    assert ENGLISH.words("книгами2") == ["книгами2"]


@given(
    st.text(
        st.sampled_from("aé\u0301\u0345カｶﾞﾊﾟ한\u1112\u1161\u11ab각\uffa1\uffc2ﬁ \u09c7\u09be\u037a"),
        max_size=40,
    )
)
def test_a_text_normalized_in_pieces_is_normalized_as_one(text: str) -> None:
    """No cut parts what composes: marks, half-width voicing, parts of a Hangul syllable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizing, "_STEP", 1)
        in_pieces = tokenizing._unified(text)
    assert in_pieces == unicodedata.normalize("NFKC", text)


def test_no_call_normalizes_a_long_text() -> None:
    """A call reads a few kilobytes at a time, as no other thread runs meanwhile."""
    pieces = [*tokenizing._pieces("ﾊﾟｽﾜｰﾄﾞ" * 10_000)]
    assert max(map(len, pieces)) < 2 * tokenizing._STEP
