"""What an error rate counts, and the conventions that rewrite texts: cases written out by hand, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from small import rows

from asr.scoring.error_rate import ErrorRate, error_rates
from asr.text.normalize import convention, join_han
from asr.text.units import has_spaceless, mostly_spaceless, units

each = pytest.mark.parametrize
UNITS = """
    今天天气 | 今 天 天 气
    今天 天气 | 今 天 天 气 | spaces between Han say nothing
    我用IPHONE六 | 我 用 IPHONE 六
    我用 IPHONE 六 | 我 用 IPHONE 六
    OPEN THE door | OPEN THE door
    买3G卡 2019年 | 买 3G 卡 2019 年 | a run of letters and figures is one
    ＩＰＨＯＮＥ六 | ＩＰＨＯＮＥ 六 | of full width, too
    好，IPHONE。 | 好 ， IPHONE 。 | Chinese punctuation is no part of the word beside it
    don't stop, go! | don't stop, go! | the word's own is, as in a word error rate
    アイフォーンを買う | ア イ フ ォ ー ン を 買 う
    人々 | 人 々
    ｱｲ ok | ｱ ｲ ok | kana of half width
    ㄅㄆ ok | ㄅ ㄆ ok | Bopomofo
    ไทย ok | ไ ท ย ok
    ລາວ ok | ລ າ ວ ok
    ཀཁ ok | ཀ ཁ ok | Tibetan
    ကခ ok | က ခ ok | Burmese
    កខ ok | ក ខ ok | Khmer
    안녕 세상 | 안녕 세상 | Korean puts spaces between words
    naïve café | naïve café
    𠀀〇 | 𠀀 〇 | beyond the first 65,536 characters; the zero
"""
MIXED = """
    我用IPHONE六打电话 | 我用IPHONE六打电话 | 7 0 0 0
    我用 IPHONE 六打电话 | 我用IPHONE六 打电话 | 7 0 0 0 | spaces don't count
    我用IPHONE | 我用IPHONES | 2 1 0 0 | one word wrong, however many letters
    我用IPHONE | 我用I PHONE | 2 1 0 1
    我用IPHONE | 我用 | 2 0 1 0
    打电话 | 打OK电话 | 3 0 0 1 | a Latin word too many
    打电话 | 打OKAY LA电话 | 3 0 0 2
    今天天气 | 今天气 | 3 0 1 0
    今天 | 明天 | 1 1 0 0
    我用iPhone | 我用IPHONE | 2 1 0 0 | case counts, as nothing is rewritten
    好的。 | 好的 | 2 0 1 0 | and so does punctuation
    GO ON | GO | 1 0 1 0
"""


@each("row", rows(UNITS), ids=" ".join)
def test_units(row):
    assert units(row[0]) == row[1].split()


@each("row", rows(MIXED), ids=" ".join)
def test_mixed_error_rate(row):
    """Reference, hypothesis, and hits, substitutions, deletions, insertions."""
    reference, hypothesis, counts = row[:3]
    assert error_rates([reference], [hypothesis], "mixed") == [ErrorRate(*map(int, counts.split()))]


@given(st.data())
@each("alphabet, unit", [("AB'É 1.", "word"), ("今天气好", "char")])
def test_of_one_kind_of_characters_it_is_the_word_or_character_error_rate(alphabet, unit, data):
    reference = data.draw(st.text(alphabet, min_size=1).filter(str.strip))
    texts = [reference], [data.draw(st.text(alphabet))]
    assert error_rates(*texts, "mixed") == error_rates(*texts, unit)


@given(st.text())
def test_units_leave_out_nothing_but_white_space(text):
    assert "".join(units(text)) == "".join(text.split())


def test_which_scripts_texts_have():
    assert has_spaceless(["GO", "去 GO"]) and not has_spaceless(["GO ON", "안녕", ""])
    assert mostly_spaceless(["我用 IPHONE"]) and not mostly_spaceless(["THE WORD 好 MEANS GOOD"])
    assert not mostly_spaceless([])


CONVENTIONS = """
    plain | Then, whose is it? | THEN WHOSE IS IT
    plain | “Don’t!” — it's the dogs' 'o'clock'... | DON'T IT'S THE DOGS O'CLOCK
    plain | well-known e.g. U.S. under_score | WELL KNOWN E G U S UNDER SCORE
    plain | Müller & café, 5% of 3.5 € | MÜLLER & CAFÉ 5% OF 3 5 € | spoken, or not for us to read
    plain | straße ﬁne | STRASSE FINE
    plain | 我用ｉＰｈｏｎｅ，打·电话。 | 我用IPHONE 打电话
    plain | 今天， 天气「好」！ | 今天天气好
    plain | e\u0301te\u0301 | ÉTÉ | composed
    english | Café Müller’s façade | CAFE MULLER'S FACADE
    english | Ångström – naïve | ANGSTROM NAIVE
    english | søk ČAPEK | SØK CAPEK | ø is a letter of its own
"""


@each("row", rows(CONVENTIONS), ids=" ".join)
def test_conventions(row):
    name, text, expected = row[:3]
    assert convention(name)(text) == expected and convention(name)("‑– ...") == ""


@given(st.text())
@each("name", ["plain", "english"])
def test_a_convention_again_changes_nothing(name, text):
    once = convention(name)(text)
    assert convention(name)(once) == once


def test_join_kana_too():
    assert join_han("ア イ を 買う OK 一") == "アイを買う OK 一"


def test_an_unknown_convention_names_those_that_are_known():
    refused("^normalize: got 'plane', .*'plain'.* plain, english", convention, "plane")
