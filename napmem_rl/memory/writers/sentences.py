"""English sentences by lexical cues: which ones tell something, of what type they are, and how they read in the third person.

Made for plain first-person chat ("I moved to Oslo.", "My sister is Mia."). Word lists decide; nothing is learned, nothing depends on the machine.
"""

from __future__ import annotations

import re

from napmem_rl.schema import RecordType

MAX_CHARS = 300  # of a sentence that becomes a record; longer ones are cut at a word
MAX_READ_CHARS = 1000  # of a sentence that are looked at
MAX_READ_SENTENCES = 200  # of a message

_SPLIT = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])|\n+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MARKS = re.compile(r"\*\*|__|^[ \t]*(?:[*#>•-]+|\d+[.)])[ \t]+", re.MULTILINE)  # Markdown: bold, headings, lists
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|st|vs|e\.g|i\.e|jr|sr)\.$", re.IGNORECASE)
_OPENER = re.compile(
    r"(?:(?:hey|hi|hello|oh|ah|aw+|hm+|uh|wow|whoa|woah|yeah|yep|yup|yes|no|nope|nah|well|ok|okay|haha|lol|sure|right|true|definitely|absolutely|totally|exactly"
    r"|awesome|cool|great|nice|actually|anyways?|btw|by the way|guess what|thanks(?: a \w+| so much)?|thank you(?: so much)?|good (?:morning|evening|afternoon)"
    r"|sorry|honestly|first of all)(?:[ ,]+[A-Z][\w'-]*)?(?: there)?\s*[,!:;.–—-]+|(?:so|and|but|also|plus|well)\b,?)\s+",
    re.IGNORECASE,
)
_SMALL_TALK = re.compile(
    r"(?:thanks?|thank you|for \w+ing|good luck|congrat\w*|see (?:you|ya)|talk (?:to you )?(?:soon|later)|take care|bye|goodbye|glad|happy to|nice"
    r"|good to|great|awesome|amazing|wow|hey|hi|hello|appreciate|sounds?|can't wait|keep|hope|hopefully|wish|let me know|believe in|you got this|got it"
    r"|no (?:problem|worries)|same here|me too"
    r"|love (?:it|that|this)|i (?:\w+ )?(?:agree|hope|wish|bet|understand|see|know|guess|believe in|appreciate|get it|get you|feel you|hear you)\b"
    r"|i(?:'m| am) (?:\w+ )?(?:glad|proud of you|happy for|sure you|sorry to|here for you|happy to hear|excited for you|all ears"
    r"|good|fine|doing (?:well|good|great))"
    r"|i(?:'d| would) be (?:happy|glad|delighted)\b|feel free|here (?:are|is) (?:some|a few|the|a list)\b"
    r"|i(?:'d| would) (?:love|like) to (?:hear|see|know)|i can(?:'t|not) (?:wait|imagine|believe)|i couldn't agree more|i (?:definitely )?will\W*$"
    r"|(?:it|that|this|these|those|there|they|you|your|he|she|what|how|who|where|when|why|which|if)\b)",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"(?:can|could|would|will|do|does|did|is|are|was|have|has|should|give|tell|show|write|list|suggest|recommend|explain|help|find|let|provide|summari[sz]e"
    r"|create|generate|translate|describe|compare|continue|rewrite|imagine|act|look|check|try|go|come|consider)\b",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"(?:please (?!(?:can|could|would|give|tell|show|write|list|help|find|suggest|recommend|explain)\b)|always |never |don't (?:ever |call |use |ask |tell )"
    r"|from now on|call me |remember (?:to|that|my|i)\b|make sure |whenever i |when i ask|in (?:the )?future,"
    r"|keep (?:your|the|all|my) (?:answers?|replies|responses?))",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"\b(?:favou?rites?|fan of|can't stand|cannot stand|would rather|'d rather|not a fan|"
    r"(?:i|we)(?: \w+ly| also| still| just| always| don't| do not| never)* (?:prefer|like|love|enjoy|hate|dislike|adore|loathe))\b",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)
_TIME = re.compile(
    r"\b(?:yesterday|tomorrow|tonight|today|ago|last (?:night|week|weekend|month|year|summer|winter|spring|fall|autumn|\w+day)|"
    r"next (?:week|weekend|month|year|summer|winter|spring|fall|autumn|\w+day)|this (?:morning|afternoon|evening|week|weekend|month|summer|winter)|recently)\b",
    re.IGNORECASE,
)
_PAST = frozenset(
    "went bought took ate got met saw made came gave found won lost left began built broke brought caught chose drank drove fell felt flew forgot grew"
    " heard held kept knew led paid ran rode said sang sat sent slept sold spent spoke stood swam taught thought threw told understood wore wrote quit"
    " had became hung".split()
)
_NOT_PAST = frozenset("need feed speed proceed succeed exceed indeed hundred bed red seed wed".split())
_BE = frozenset("i'm am is are isn't aren't we're".split())
_BASE = frozenset(
    "prefer like love enjoy hate dislike adore live work want need know think believe feel hope wish plan try go play study teach run read write eat drink cook"
    " drive own speak use keep get make take see say tell ask give find help look seem start spend sleep travel visit volunteer walk watch wear listen learn"
    " collect practice practise paint dance sing swim hike bike ride train coach manage lead build sell buy pay rent share meet miss remember forget understand"
    " mean care worry wait expect agree belong attend grow bake garden knit sew draw design code stay wake commute suffer avoid consider focus struggle tend"
    " require appreciate admire follow hear cherish value treasure hang mentor estimate decide handle hire host invest"
    " join launch order prepare ski offer support produce create organize organise donate".split()
)
_IRREGULAR = {"am": "is", "'m": "is", "have": "has", "haven't": "hasn't", "do": "does", "don't": "doesn't", "were": "was", "go": "goes"}
ADVERBS = "also|really|just|always|never|still|often|usually|currently|now|sometimes|only|already|even|mostly|mainly|truly|rarely|actually"
_CONTRACTION = {"'m": " is", "'ve": " has", "'d": " would", "'ll": " will"}
_NUMERAL = "".join(f"(?<!{word} )" for word in "Phase War Type Class Stage Title Article Chapter Division Tier Category Level Part Grade".split())  # "Phase I"
_SINGULAR = re.compile(rf"{_NUMERAL}\b(?:I(?='|\b)(?!\.)|i(?=\s|'(?:m|ve|d|ll)\b)|me|my|mine|myself)\b", re.IGNORECASE)
_PLURAL = re.compile(r"\b(?:we|our|ours|us|ourselves)\b", re.IGNORECASE)
_THIN = re.compile(
    r"(?:thanks?|thank you|for \w+ing|good luck|congrat\w*|see (?:you|ya)|talk (?:to you )?(?:soon|later)|take care|bye|goodbye|got it"
    r"|no (?:problem|worries)|sounds|wow|glad|appreciate|keep (?:it|up|going)|let me know|you got this|can't wait|same here|me too"
    r"|i (?:\w+ )?(?:agree|hope|wish|bet|understand|see|know|guess|appreciate)\b|i(?:'d| would) be (?:happy|glad|delighted)\b|feel free|you\b|your\b)",
    re.IGNORECASE,
)
_REACTION = re.compile(
    r"\b(?:(?:proud of|happy for|excited for|stoked for|here for|rooting for) you|glad (?:you|that you|to hear)|(?:you're|you are) (?:\w+ )?(?:doing|so|such"
    r"|an?|really|gonna|going)|good luck|way to go|keep (?:it )?up|keep (?:you|ya) posted|let me know|happy to help|here to (?:help|support)"
    r"|(?:means?|meant) a lot|kind words|long time no|got this"
    r"|you should be|looks? (?:so |really )?(?:great|awesome|amazing|good|nice|cool|fun|delicious|yummy|beautiful))\b",
    re.IGNORECASE,
)
_CHAT_QUESTION = re.compile(
    r"how (?:are|have|is|was) (?:you|things|it|your)\b|what'?s (?:up|new|going on|happening)\b|anything (?:new|else)\b|right\?|(?:how|what) about you\b"
    r"|(?:and )?you\?|would you like (?:me|more|any|to know)\b|do you have any (?:other|more|further) questions|(?:is there|was there) anything else",
    re.IGNORECASE,
)
_SUBJECT = re.compile(rf"{_NUMERAL}(?<![\w'])[Ii]('m|'ve|'d|'ll)?(?=\s)((?:\s+(?:{ADVERBS})\b)*)(?:(\s+)([A-Za-z']+))?(?![\w'])")


def split_sentences(text: str) -> list[str]:
    """Sentences of a text, trimmed, in order; line breaks end one, common abbreviations do not."""
    sentences: list[str] = []
    for part in _SPLIT.split(text.replace("’", "'")):
        if sentences and _ABBREVIATION.search(sentences[-1]):
            sentences[-1] = f"{sentences[-1]} {part.strip()}"
        elif part.strip():
            sentences.append(part.strip())
    return sentences


def split_bare(text: str) -> list[str]:
    """Sentences without Markdown, code and openers: ``"**Hey** Mel, good to see you! So I moved."`` gives ``["Good to see you!", "I moved."]``.

    Of an endless message the first MAX_READ_SENTENCES, each cut to MAX_READ_CHARS.
    """
    sentences = split_sentences(_MARKS.sub("", _CODE.sub("\n", text)))[:MAX_READ_SENTENCES]
    return [bare for sentence in sentences if (bare := _strip_opener(cut_at_word(sentence, MAX_READ_CHARS)))]


def is_question(sentence: str) -> bool:
    """True for a sentence that ends in a question mark, quotes and brackets aside."""
    return sentence.rstrip("\"')]").endswith(("?", "？"))


def is_telling(sentence: str) -> bool:
    """True for an informative sentence that is more than a remark about what the other said ("I'm so proud of you")."""
    return is_informative(sentence) and (is_instruction(sentence) or not _is_remark(sentence))


def is_reply(sentence: str) -> bool:
    """True for what tells something as the answer to a question, though it might not by itself ("5 years already!", "They were wild.")."""
    is_call = sentence.endswith("!") and len(sentence.split()) == 1  # "Mel!", "Totally!"
    return not (is_question(sentence) or is_call or _THIN.match(sentence) or _is_remark(sentence))


def is_chat_question(sentence: str) -> bool:
    """True for a question that only keeps a conversation going ("How are you?", "What's new?")."""
    return _CHAT_QUESTION.match(sentence) is not None


def is_instruction(sentence: str) -> bool:
    """True for what tells the listener how to behave ("Please keep your answers short.")."""
    return _INSTRUCTION.match(sentence) is not None


def cut_at_word(text: str, limit: int) -> str:
    """The text, or its beginning up to a word's end with an ellipsis, about `limit` characters."""
    return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " …"


def is_informative(sentence: str) -> bool:
    """True unless the sentence is a question, a request, small talk, or too short to tell anything."""
    words = re.findall(r"[\w']+", sentence)
    if len(words) < 3 or is_question(sentence):
        return False
    if is_instruction(sentence):
        return True
    if sentence.endswith("!") and not speaks_of_self(sentence):
        return False  # "Maria, thank you!", "Nature is so beautiful!"
    return not _SMALL_TALK.match(sentence) and not _REQUEST.match(sentence)


def classify_sentence(sentence: str) -> RecordType:
    """The record type of an informative sentence, as it was said (first person)."""
    if is_instruction(sentence):
        return RecordType.INSTRUCTION
    if is_past(sentence):
        return RecordType.EVENT
    if _PREFERENCE.search(sentence):
        return RecordType.PREFERENCE
    return RecordType.EVENT if has_time(sentence) else RecordType.FACT


def is_about_speaker(sentence: str) -> bool:
    """True where the sentence speaks in the first person."""
    return bool(_SINGULAR.search(sentence) or _PLURAL.search(sentence))


def speaks_of_self(sentence: str) -> bool:
    """True for a sentence in the first person, or one that leaves its "I" out ("Just got back from a trip")."""
    return is_about_speaker(sentence) or _is_subjectless(sentence)


def has_time(sentence: str) -> bool:
    """True where the sentence says when ("last week", "tomorrow")."""
    return _TIME.search(sentence) is not None


def has_second_person(sentence: str) -> bool:
    """True where the sentence speaks of "you"."""
    return _SECOND_PERSON.search(sentence) is not None


def rewrite_third_person(sentence: str, speaker: str) -> str:
    """The sentence about its speaker by name, otherwise in the same words.

    Example: ``rewrite_third_person("I prefer my tea hot.", "Ana")`` gives ``"Ana prefers Ana's tea hot."``. Where only "we" is said, or nobody, the name
    goes in front: ``"Ana: We moved to Oslo."``.
    """
    has_singular = bool(_SINGULAR.search(sentence))
    text = _SUBJECT.sub(lambda match: _rewrite_subject(match, speaker), sentence)
    own = {"i": speaker, "me": speaker, "my": f"{speaker}'s", "mine": f"{speaker}'s", "myself": speaker}
    text = _SINGULAR.sub(lambda match: own[match.group(0).lower()], text)
    if not has_singular and (_PLURAL.search(sentence) or _is_subjectless(sentence) or is_instruction(sentence)):
        text = f"{speaker}: {text}"
    return text[:1].upper() + text[1:]


def _strip_opener(sentence: str) -> str:
    while match := _OPENER.match(sentence):
        sentence = sentence[match.end() :]
    return sentence[:1].upper() + sentence[1:]


def _is_remark(sentence: str) -> bool:
    """A reaction to the other, or a sentence about "you" in which the speaker does not occur."""
    return bool(_REACTION.search(sentence)) or (has_second_person(sentence) and not is_about_speaker(sentence))


def _is_subjectless(sentence: str) -> bool:
    """A statement that leaves its "I" out ("Just got back from a trip", "Thinking about a dog")."""
    first = re.match(r"\w+", sentence)
    word = first.group(0).lower() if first else ""
    return word in _PAST or word in ("just", "been", "gonna") or word.endswith("ing")


def is_past(sentence: str) -> bool:
    """A past-tense verb among the first words, subject included ("I just moved", "My sister moved")."""
    words = [word.lower() for word in re.findall(r"[\w']+", sentence)[:4]]
    if words[0].endswith("ing") or _BE.intersection(words[:3]):
        return False
    return any(word in _PAST or (word.endswith("ed") and word not in _NOT_PAST) for word in words)


def _rewrite_subject(match: re.Match[str], speaker: str) -> str:
    """The pronoun "I", its contraction, adverbs and the verb, made to agree."""
    contraction, adverbs, space, verb = match.group(1), match.group(2), match.group(3) or "", match.group(4) or ""
    if contraction:
        return f"{speaker}{_CONTRACTION[contraction]}{adverbs}{space}{verb}"
    return f"{speaker}{adverbs}{space}{_conjugate(verb)}"


def _conjugate(verb: str) -> str:
    """Third person singular of a known present-tense verb; any other word as it is."""
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb not in _BASE:
        return verb
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{verb}s"
