"""Reading practice: the prompt of a packet, and two of its candidates said again word by word."""

import random

from napmem_rl.data.packet_practice import NUM_RECITED, draw_recital
from napmem_rl.data.worlds import generate_user

USER = generate_user("practice-test", 0, num_questions=12)


def test_what_is_to_be_said_is_the_question_and_lines_that_are_shown():
    rng = random.Random(0)
    for _ in range(20):
        recital = draw_recital(USER, rng, num_candidates=8)
        lines = recital.prompt.split("Candidates:\n")[1].splitlines()
        question = recital.prompt.removeprefix("Question: ").splitlines()[0]
        assert len(lines) == 8 == len(set(lines))
        said = [line for line in lines if line in recital.text]
        assert len(said) >= NUM_RECITED and recital.text.startswith(question)


def test_the_same_generator_gives_the_same_texts_and_another_gives_others():
    first, again, other = (draw_recital(USER, random.Random(seed), num_candidates=6) for seed in (1, 1, 2))
    assert first == again != other


def test_few_candidates_suffice():
    recital = draw_recital(USER, random.Random(0), num_candidates=2)
    assert len(recital.prompt.split("Candidates:\n")[1].splitlines()) == 2
