"""Which words say what a text is about."""

from __future__ import annotations

from napmem_rl.retrieval.bm25 import tokenize_words

GENERAL_STEMS = frozenset(  # stems that say nothing of a topic
    "about ad add after again ago all alreadi also alway am amaz and ani anoth anyth appreci around assist away awesom back be becaus becom been befor"
    " best bet better big bit bought break bring call came can care catch chang chat check combin come cool could cours day definit detail determin did"
    " didn differ do doe doesn don down each enjoy even ever everi everyon everyth excit feel felt few find first for forward found from fun gave get"
    " give go goal gonna good got gotta great had happen happi hard has have he help her here him his hobbi home hope how idea if impact import in it"
    " join just keep key kind know last late learn left let life like littl live ll long look lot love made make mani may me mean might moment month"
    " more morn most motiv move much must my name need never new next nice night not now off often old onc one onli other ouch our out over own part"
    " peopl place plan post prefer pretti progress push put re readi real realli recent rememb right said saw say see seem share she should show sinc"
    " small so some someth sometim soon sorri special spend spent start stay step still stoke stuff such super sure take talk tell than thank that the"
    " their them then there these they thing think this those though thought through time today togeth too took tough tri true two up us use user usual"
    " ve veri view want was way we week weekend well went were what when where which while who whole whom why wish with won wonder work world would"
    " year yesterday yet you your".split()
)


def find_content_stems(text: str) -> frozenset[str]:
    """Stems of the words that say something of a topic, numbers aside: ``"I really went to Oslo with 2 friends"`` gives ``{"oslo", "friend"}``."""
    return frozenset(stem for stem in tokenize_words(text) if stem not in GENERAL_STEMS and not stem.isdigit())
