"""What a question says of the evidence it needs, by its words alone: the intent that guides retrieval, and the names in it."""

from __future__ import annotations

import re

from napmem_rl.retrieval.query import names_date
from napmem_rl.systems.memchain.packet import Intent

_PERSON = (  # somebody named by what they are to another: who it is stands in one memory, what they did in another
    r"(?:['’]s|\b(?:my|his|her|their|our)) (?:\w+ )?(?:sister|brother|mother|father|mom|mum|dad|wife|husband|partner|boyfriend|girlfriend|son|daughter|cousin"
    r"|aunt|uncle|niece|nephew|friend|boss|manager|colleague|coworker|neighbou?r|roommate|flatmate|coach|teacher|landlord)\b"
)
_RULES: tuple[tuple[Intent, str], ...] = (  # the first that fits
    (Intent.TEMPORAL, r"\bhow many (?:days|weeks|months|years|hours)\b"),
    (Intent.COUNT, r"\bhow (?:many times|often|many)\b|\blist\b|\ball (?:of )?(?:the|my|his|her|their)\b|\bevery\b|\btotal\b"),
    (Intent.TEMPORAL, r"\bwhen\b|\bhow (?:long|old)\b|\bwhat (?:day|date|month|year|time)\b|\b(?:before|after|since|until|ago)\b"),
    (Intent.UPDATE, r"\b(?:now|current(?:ly)?|latest|most recent(?:ly)?|still|these days|any ?more|nowadays|up to date)\b"),
    (Intent.COMPARISON, r"\b(?:more|less|fewer|better|worse|\w+er|first|difference)\b.*\b(?:or|than|between)\b|\bboth\b|\bin common\b"),
    (Intent.MULTI_HOP, rf"\bwhose\b|\bthe (?:\w+ ){{1,3}}(?:who|that|where|which)\b|['’]s \w+['’]s\b|{_PERSON}"),
    (Intent.PREFERENCE, r"\b(?:recommend|suggest|suit|prefer|favou?rite|like|enjoy|advice|tips?|ideas?)\b"),
)
_PATTERNS = tuple((intent, re.compile(pattern)) for intent, pattern in _RULES)
_NAME = r"[A-ZÀ-ÖØ-Þ][\w’'-]*(?:\s+[A-ZÀ-ÖØ-Þ][\w’'-]*)*"
_NAMES = re.compile(_NAME)
_INNER_NAMES = re.compile(rf"(?<=[\w,;:] ){_NAME}")  # a capital at the start of a sentence says nothing
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,60})[\"”]")
_NO_NAMES = frozenset(
    "a about after all am an and any are as at before but by can could did do does during each every for from had has have he her his how i i'd i'll i'm i've "
    "if in is it its list may might my name of on or our she should since some tell that the their there they this to until was we were what when where which "
    "while who whom whose why will with would you your "
    "monday tuesday wednesday thursday friday saturday sunday "
    "january february march april june july august september october november december".split()
)


def guess_intent(question: str) -> Intent:
    """The intent of a question, by fixed rules over its words; a lookup where none fits.

    Example: ``guess_intent("When did Ana move?")`` is ``Intent.TEMPORAL``.
    """
    lowered = question.lower()
    for intent, pattern in _PATTERNS:
        if pattern.search(lowered):
            return intent
    return Intent.TEMPORAL if names_date(question) else Intent.LOOKUP


def find_names(question: str) -> tuple[str, ...]:
    """Names and quoted titles of a question, each once, in order.

    Example: ``find_names('What did Ana say of "Blue Sky" in Oslo?')`` gives ``("Blue Sky", "Ana", "Oslo")``.
    """
    return _collect([*_QUOTED.findall(question), *_NAMES.findall(_QUOTED.sub(" ", question))])


def find_inner_names(text: str) -> tuple[str, ...]:
    """Names within the sentences of a memory, each once, in order; a word that only starts a sentence is none.

    Example: ``find_inner_names("Yes. My sister is called Mia.")`` gives ``("Mia",)``.
    """
    return _collect(_INNER_NAMES.findall(text))


def _collect(found: list[str]) -> tuple[str, ...]:
    """Names without words at either end that are none, and without a possessive."""
    names = []
    for name in found:
        words = [re.sub(r"['’]s?$", "", word) for word in name.split()]
        while words and words[0].lower().replace("’", "'") in _NO_NAMES:
            words.pop(0)
        while words and words[-1].lower() in _NO_NAMES:
            words.pop()
        names += [" ".join(words)] if words and len(" ".join(words)) > 1 else []
    return tuple(dict.fromkeys(names))
