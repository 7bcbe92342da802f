"""When an answer as a whole says that it is not known: a small set of English forms, without a model.

Every clause must be such a form. "I don't know, maybe Oslo" answers; "You never mentioned that, so I don't know" does not. Forms may end in what is not known
("… about her hamster") as long as nothing in there turns the sentence round ("… other than Oslo").
"""

from __future__ import annotations

import re

from napmem_rl.rewards.text_match import normalise

_CLAUSES = re.compile(r"[.,;:!?…—\n]+")
_THIS = r"(?:that|this|it|so|(?:the|this|that|your) (?:answer|information|question|detail)s?)"
_PLACE = r"(?:(?:in|from|by|with|based on|to) (?:the|our|your|my|these|any|what) (?:\w+ ){0,4}\w+)"
_TURN = (
    r"but|however|maybe|probably|perhaps|possibly|likely|except|besides|only|though|although|guess|think|assume|believe|unless|other than|apart from|instead"
)
_OF_WHAT = r"about|of|on|regarding|that|which|what|whether|where|when|who|how|why|any|anything|a|an|the|your|her|his|their|its|my"
_TAIL = rf"(?: (?:{_OF_WHAT})\b(?:(?! (?:{_TURN})\b).){{0,100}})?"
_SAID = r"(?:mentioned|stated|specified|said|provided|given|known|available|discussed|recorded|disclosed|told|shared|found|covered)"
_NOT = r"(?:not|never|nowhere|isnt|wasnt|hasnt been|has not been|is not|was not|has never been|was never|is never|is nowhere|was nowhere)"

_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?:{_THIS} )?(?:{_NOT} )(?:been |yet |ever |explicitly )*{_SAID}(?: {_PLACE})?(?: anywhere)?",
        rf"(?:{_THIS} )?(?:is |remains )?(?:unknown|unanswerable|unspecified|unstated|unclear)(?: {_PLACE})?",
        r"(?:not known|not answerable|na|n/a|none mentioned|no answer|no idea|no data)",
        rf"(?:there (?:is|was|are) |theres |i (?:have|see|find|found|could find|can find) )?(?:no|not any|not enough|insufficient|too little) "
        rf"(?:information|mention|record|records|memory|memories|evidence|details|idea|data|trace|way to (?:know|tell|answer))(?: available| given| provided)?"
        rf"{_TAIL}(?: {_PLACE})?",
        rf"i (?:really |simply |honestly )?(?:dont|do not|cannot|cant|could not|couldnt|am not able to|am unable to) "
        rf"(?:know|remember|recall|tell|say|answer|find|determine|have (?:any |enough |that |this )?(?:information|memory|record|memories|records|details))"
        rf"(?: {_THIS})?{_TAIL}(?: {_PLACE})?",
        rf"(?:{_THIS} )?(?:cannot|cant|could not|can not) be (?:answered|determined|known|found|told|inferred)(?: {_PLACE})?",
        rf"(?:you|the user|the conversations?|the memor(?:y|ies)|the records?|we|they|he|she|\w+) "
        rf"(?:did not|didnt|do not|dont|does not|doesnt|never|have not|havent|has not|hasnt|has never|have never) "
        rf"(?:ever |explicitly )?(?:mention|mentioned|say|said|tell me|told me|state|stated|specify|specified|talk|talked|discuss|discussed|share|shared)"
        rf"(?: {_THIS})?{_TAIL}(?: {_PLACE})?",
    )
)
_LEADS = re.compile(r"(?:(?:(?:im |i am )?sorry|unfortunately|so|and|because|as far as i (?:know|can tell|can see)|as|since|well|actually|but)(?: |$))*")


def is_abstention(answer: str) -> bool:
    """Whether the whole answer says that it is not known, or was never mentioned.

    Example: True for "Not mentioned in the conversation.", "Sorry, I don't know."; False for "", "I don't know, perhaps Oslo", "0 times".
    """
    clauses = [clause for part in _CLAUSES.split(answer) if (clause := _LEADS.sub("", normalise(part), count=1).strip())]
    return bool(clauses) and all(any(form.fullmatch(clause) for form in _FORMS) for clause in clauses)
