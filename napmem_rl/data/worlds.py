"""Synthetic users: what a person told an assistant over a few months, and questions about it whose answers are known.

A user is drawn from the name of a population and a number alone, so they give the same messages, questions and gold evidence on every machine. The world
is small on purpose (a few hundred words, one sentence per fact): a policy of a million parameters can learn it in minutes. Six kinds of question need six
kinds of behaviour:

    fact         one record says it                                      search the records
    changed      several records say it, the newest holds                prefer the newest
    two_hop      one record names a person, another tells of them        search twice
    raw_detail   said in passing, so that only the raw message holds it  search the conversation
    preference   a stable taste, which the profile gathers               read the profile or search the records
    control      answerable without memory                               answer at once

What it teaches: which level to consult, when to stop, which of two contradicting memories holds, and when memory is not needed. What it does not teach:
free-form language, judging vague evidence, long contexts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from napmem_rl.schema import AnswerKey, Message, Task, ToolCall

NAMES = (
    "Mia Leo Zoe Max Ivy Sam Eva Ben Amy Tom Lily Jack Nora Hugo Rosa Omar Lena Paul Iris Dan Faye Carl Judy Neil Tess Ravi Gina Kurt Mona Seth Dora Finn"
    " Hana Igor Jade Kyle Lara Milo Nina Otto Pia Rex Sara Theo Uma Vera Wade Yara Zack Ada"
).split()
CITIES = (
    "Oslo Lima Rome Cairo Paris Tokyo Delhi Seoul Quito Milan Dubai Berlin Vienna Madrid Prague Dublin Lisbon Athens Warsaw Zurich Geneva Havana Manila"
    " Nairobi Sydney Boston Denver Austin Toronto Helsinki"
).split()
JOBS = "nurse pilot chef lawyer farmer baker tailor painter plumber driver dancer banker florist barber teacher surgeon waiter miner welder judge".split()
HOBBIES = (
    "chess golf yoga tennis pottery sailing fishing archery skiing surfing knitting boxing rowing juggling hiking origami fencing karate cycling curling"
).split()
PETS = "Biscuit Shadow Pepper Ginger Coco Bandit Smokey Maple Ziggy Nugget Waffle Pickle Mocha Peanut Tofu Noodle Bagel Clover Juniper Dizzy".split()
HOTELS = "Aurora Beacon Cascade Dune Ember Falcon Grove Harbor Ivory Jasper Lotus Meridian Nimbus Orchid Palace Quartz Regent Summit Tulip Willow".split()
DISHES = (
    "ramen paella risotto tacos curry lasagna sushi kebab pizza falafel dumplings gnocchi burger pho ceviche goulash poutine biryani moussaka schnitzel"
).split()
PHONES = "Nokia Fairphone Galaxy Sony Motorola Honor Realme Xperia Zenfone Oneplus".split()
CARS = "Volvo Honda Tesla Skoda Toyota Mazda Subaru Peugeot Fiat Renault".split()
GYMS = "Apex Boulder Corefit Dynamo Everfit Fusion Gravity Hercules Ironside Jumpstart".split()
DRINKS = "tea coffee cocoa juice cider lemonade kombucha milk soda water".split()
MUSIC = "jazz rock opera blues techno folk reggae soul metal disco".split()
COLORS = "red blue green purple orange yellow pink black white teal".split()
SEASONS = "spring summer autumn winter".split()
FILMS = "comedy horror drama western thriller romance mystery fantasy satire noir".split()
ITEMS = "lamp sofa kettle tent camera guitar rug desk mirror ladder blender jacket watch printer".split()
RELATIONS = "sister brother boss neighbor cousin roommate coach uncle aunt".split()
OPPOSITES = dict(
    pair.split("/")
    for pair in (
        "hot/cold big/small up/down fast/slow light/dark old/young wet/dry open/closed early/late hard/soft high/low full/empty loud/quiet near/far rich/poor"
        " thick/thin"
    ).split()
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribute:
    """Something that can be said of a person or the user, and asked about. `{p}` is the person, `{v}` the value."""

    values: Sequence[str]
    statement: str
    question: str
    query: str


PERSON_ATTRIBUTES = {
    "city": Attribute(values=CITIES, statement="{p} lives in {v}.", question="Which city does {p} live in?", query="{p} lives in"),
    "job": Attribute(values=JOBS, statement="{p} works as a {v}.", question="Which job does {p} have?", query="{p} works as"),
    "hobby": Attribute(values=HOBBIES, statement="{p} enjoys the hobby {v}.", question="Which hobby does {p} enjoy?", query="{p} enjoys hobby"),
    "pet": Attribute(values=PETS, statement="{p} has a pet named {v}.", question="Which pet does {p} have?", query="{p} has pet"),
}
USER_ATTRIBUTES = {
    "home": Attribute(values=CITIES, statement="I moved home to {v}.", question="Which city is the home of User now?", query="User moved home"),
    "phone": Attribute(values=PHONES, statement="I bought a phone {v}.", question="Which phone does User have now?", query="User bought phone"),
    "car": Attribute(values=CARS, statement="I bought a car {v}.", question="Which car does User have now?", query="User bought car"),
    "gym": Attribute(values=GYMS, statement="I joined the gym {v}.", question="Which gym does User go to now?", query="User joined gym"),
}
PREFERENCES = {"drink": DRINKS, "music": MUSIC, "color": COLORS, "season": SEASONS, "film": FILMS}
QUESTION_TYPES = ("fact", "changed", "two_hop", "raw_detail", "preference", "control")
UNKNOWN = "unknown"  # the honest answer where no evidence was found
NUM_PERSONS = 4
START = datetime(2024, 1, 1, 9, 0)
MAX_DAYS = 120  # no history is longer
MAX_ITEMS = 80  # nor holds more messages


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticQuestion:
    """A question, its key, and what a good demonstrator does: `plan` holds the tool calls that reach the evidence, `keywords` what a sloppy one searches for.

    `stale` are values that once held: the wrong answers a careless reader gives.
    """

    task: Task
    key: AnswerKey
    plan: tuple[ToolCall, ...]
    keywords: str
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticUser:
    """A user's whole history in time order, and the questions asked after it."""

    bank_id: str
    messages: tuple[Message, ...]
    questions: tuple[SyntheticQuestion, ...]


@dataclass(frozen=True, slots=True)
class _Said:
    """One user message before it has an id: its text and what it is about."""

    text: str
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Everything that is true of a user."""

    relations: dict[str, str]  # relation -> person
    persons: dict[str, dict[str, str]]  # person -> attribute -> value
    history: dict[str, list[str]]  # user attribute -> values, oldest first
    trips: dict[str, tuple[str, str]]  # city -> hotel, dish
    preferences: dict[str, str]
    purchases: list[str]


def _draw_facts(rng: random.Random) -> _Facts:
    persons = rng.sample(NAMES, NUM_PERSONS)
    drawn = {name: rng.sample(attribute.values, NUM_PERSONS) for name, attribute in PERSON_ATTRIBUTES.items()}
    hotels, dishes = rng.sample(HOTELS, NUM_PERSONS), rng.sample(DISHES, NUM_PERSONS)
    return _Facts(
        relations=dict(zip(rng.sample(RELATIONS, NUM_PERSONS), persons, strict=True)),
        persons={person: {name: values[i] for name, values in drawn.items()} for i, person in enumerate(persons)},
        history={name: rng.sample(attribute.values, rng.choice((2, 2, 3))) for name, attribute in USER_ATTRIBUTES.items()},
        trips={city: (hotels[i], dishes[i]) for i, city in enumerate(rng.sample(CITIES, NUM_PERSONS))},
        preferences={name: rng.choice(values) for name, values in PREFERENCES.items()},
        purchases=rng.sample(ITEMS, 4),
    )


def _say_all(facts: _Facts, rng: random.Random) -> list[_Said]:
    """All messages of the user in a random order in which values of one attribute keep their order in time."""
    said = [_Said(f"My {relation} is {person}.", ("relation", relation)) for relation, person in facts.relations.items()]
    said += [
        _Said(PERSON_ATTRIBUTES[name].statement.format(p=person, v=value), ("person", person, name))
        for person, values in facts.persons.items()
        for name, value in values.items()
    ]
    for city, (hotel, dish) in facts.trips.items():
        details = f"In {city} I stayed at the hotel {hotel}. In {city} I ate the dish {dish}."
        said.append(_Said(f"I took a trip to {city}. {details}", ("trip", city)))
    said += [_Said(f"I prefer the {name} {value}.", ("preference", name)) for name, value in facts.preferences.items()]
    said += [_Said(f"I bought a {item}.", ("purchase", item)) for item in facts.purchases]
    changed = [[_Said(USER_ATTRIBUTES[name].statement.format(v=value), ("user", name, value)) for value in values] for name, values in facts.history.items()]
    slots: list[list[_Said] | _Said] = [*said, *(versions for versions in changed for _ in versions)]
    rng.shuffle(slots)
    remaining = {id(versions): iter(versions) for versions in changed}
    return [next(remaining[id(slot)]) if isinstance(slot, list) else slot for slot in slots]


def _write_messages(said: Sequence[_Said], rng: random.Random) -> tuple[tuple[Message, ...], dict[tuple[str, ...], str]]:
    """Lay the user's messages out in sessions of three to five, each closed by the assistant. Returns the messages and topic -> message id."""
    messages: list[Message] = []
    id_of: dict[tuple[str, ...], str] = {}
    queue, day, session = list(said), 0, 0
    while queue:
        session += 1
        day += rng.randint(3, 8)
        moment = START + timedelta(days=day, minutes=rng.randint(0, 600))
        for text in queue[: (size := rng.randint(3, 5))]:
            id_of[text.about] = _append(messages, session, "user", text.text, moment)
            moment += timedelta(minutes=1)
        _append(messages, session, "assistant", "Noted.", moment)
        queue = queue[size:]
    return tuple(messages), id_of


def _append(messages: list[Message], session: int, role: str, text: str, moment: datetime) -> str:
    message_id = f"msg:{len(messages) + 1}"
    speaker = "User" if role == "user" else "Assistant"
    messages.append(Message(message_id=message_id, session_id=f"s{session}", role=role, speaker=speaker, text=text, time=moment.isoformat()))
    return message_id


def _records(query: str) -> ToolCall:
    return ToolCall(name="search_records", arguments={"query": query})


class _Asker:
    """Draws questions of each type about one user."""

    def __init__(self, bank_id: str, facts: _Facts, id_of: dict[tuple[str, ...], str], asked_at: str, rng: random.Random) -> None:
        self._bank_id, self._facts, self._id_of, self._asked_at, self._rng = bank_id, facts, id_of, asked_at, rng
        self._count = 0

    def ask(self, kind: str) -> SyntheticQuestion:
        """One question of a type in QUESTION_TYPES."""
        makers: dict[str, Callable[[], SyntheticQuestion]] = {
            "fact": self._fact,
            "changed": self._changed,
            "two_hop": self._two_hop,
            "raw_detail": self._raw_detail,
            "preference": self._preference,
            "control": self._control,
        }
        return makers[kind]()

    def _build(
        self, kind: str, question: str, answer: str, evidence: Sequence[tuple[str, ...]], plan: Sequence[ToolCall], keywords: str, stale: Sequence[str] = ()
    ) -> SyntheticQuestion:
        self._count += 1
        task_id = f"{self._bank_id}-q{self._count}-{kind}"
        task = Task(task_id=task_id, bank_id=self._bank_id, question=question, category=kind, needs_memory=kind != "control", asked_at=self._asked_at)
        key = AnswerKey(task_id=task_id, references=(answer,), evidence_ids=tuple(self._id_of[about] for about in evidence))
        return SyntheticQuestion(task=task, key=key, plan=tuple(plan), keywords=keywords, stale=tuple(stale))

    def _fact(self) -> SyntheticQuestion:
        person, name = self._rng.choice(list(self._facts.persons)), self._rng.choice(list(PERSON_ATTRIBUTES))
        attribute = PERSON_ATTRIBUTES[name]
        query = attribute.query.format(p=person)
        answer = self._facts.persons[person][name]
        return self._build("fact", attribute.question.format(p=person), answer, [("person", person, name)], [_records(query)], query)

    def _changed(self) -> SyntheticQuestion:
        name = self._rng.choice(list(USER_ATTRIBUTES))
        attribute, values = USER_ATTRIBUTES[name], self._facts.history[name]
        return self._build("changed", attribute.question, values[-1], [("user", name, values[-1])], [_records(attribute.query)], attribute.query, values[:-1])

    def _two_hop(self) -> SyntheticQuestion:
        relation, name = self._rng.choice(list(self._facts.relations)), self._rng.choice(list(PERSON_ATTRIBUTES))
        person, attribute = self._facts.relations[relation], PERSON_ATTRIBUTES[name]
        evidence = [("relation", relation), ("person", person, name)]
        plan = [_records(f"User's {relation} is"), _records(attribute.query.format(p=person))]
        question = attribute.question.format(p=f"User's {relation}")
        return self._build("two_hop", question, self._facts.persons[person][name], evidence, plan, attribute.query.format(p=f"User's {relation}"))

    def _raw_detail(self) -> SyntheticQuestion:
        city = self._rng.choice(list(self._facts.trips))
        hotel, dish = self._facts.trips[city]
        noun, question, answer = self._rng.choice(
            [("hotel", f"Which hotel did User stay at in {city}?", hotel), ("dish", f"Which dish did User eat in {city}?", dish)]
        )
        query = f"trip to {city} {noun}"
        plan = [ToolCall(name="search_conversation", arguments={"query": query})]
        return self._build("raw_detail", question, answer, [("trip", city)], plan, query)

    def _preference(self) -> SyntheticQuestion:
        name = self._rng.choice(list(PREFERENCES))
        plan = [ToolCall(name="read_file", arguments={"file_name": "profile.md"})]
        return self._build("preference", f"Which {name} does User prefer?", self._facts.preferences[name], [("preference", name)], plan, f"User prefers {name}")

    def _control(self) -> SyntheticQuestion:
        if self._rng.random() < 0.5:
            word = self._rng.choice(list(OPPOSITES))
            return self._build("control", f"Which word is the opposite of {word}?", OPPOSITES[word], [], [], f"opposite of {word}")
        left, right = self._rng.randint(1, 9), self._rng.randint(1, 9)
        return self._build("control", f"Which number is {left} plus {right}?", str(left + right), [], [], f"{left} plus {right}")


def generate_user(population: str, index: int, *, num_questions: int = 12) -> SyntheticUser:
    """Draw user number `index` of a population.

    Args:
        population: its name; two populations share no draw.
        index: which user of it.
        num_questions: how many questions, cycling through QUESTION_TYPES so that types are balanced.
    """
    rng = random.Random(f"napmem-world:{population}:{index}")
    facts = _draw_facts(rng)
    messages, id_of = _write_messages(_say_all(facts, rng), rng)
    asked_at = (datetime.fromisoformat(messages[-1].time) + timedelta(days=1)).isoformat()
    bank_id = f"{population}-{index}"
    asker = _Asker(bank_id, facts, id_of, asked_at, rng)
    questions = tuple(asker.ask(QUESTION_TYPES[i % len(QUESTION_TYPES)]) for i in range(num_questions))
    return SyntheticUser(bank_id=bank_id, messages=messages, questions=questions)


def all_words() -> tuple[str, ...]:
    """Every word, id, date and number that a world can hold, for a word-level vocabulary."""
    people = (NAMES, RELATIONS, CITIES, JOBS, HOBBIES, PETS)
    things = (HOTELS, DISHES, PHONES, CARS, GYMS, DRINKS, MUSIC, COLORS, SEASONS, FILMS, ITEMS)
    lists = (*people, *things, OPPOSITES, OPPOSITES.values())
    ids = [f"{level}:{number}" for level in ("msg", "rec") for number in range(1, MAX_ITEMS)]
    dates = [(START + timedelta(days=day)).date().isoformat() for day in range(MAX_DAYS)]
    return (*(word for words in lists for word in words), *ids, *dates, *(str(number) for number in range(1, 19)))
