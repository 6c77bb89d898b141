"""Prompts that are kept: the same as read anew, dropped where there is no room."""

import torch

from longctx.core.engine.setup import prepare
from longctx.core.kv.kept_prompts import KeptPrompts
from longctx.core.kv.prompt import Prompt

BEGINNING = torch.arange(5, 45)
QUESTIONS = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6])]


def reader(decoder, counted: list[int]):
    def read(beginnings: list[torch.Tensor]) -> list[Prompt]:
        counted.append(len(beginnings))
        prompts = [Prompt(len(ids) + 16) for ids in beginnings]
        for ids, prompt in zip(beginnings, prompts, strict=True):
            decoder.read(ids, prompt)
        return prompts

    return read


def test_what_follows_is_as_behind_a_new_prompt(setup_random):
    decoder, kept, counted = prepare(setup_random).decoder, KeptPrompts(), []
    read = reader(decoder, counted)
    for question in (*QUESTIONS, QUESTIONS[0]):
        ours = decoder.read(question, *kept.of([BEGINNING], read))
        assert torch.equal(ours, decoder.read(question, *reader(decoder, [])([BEGINNING])))
        whole = torch.cat([BEGINNING, question])
        alone = decoder.read(whole, Prompt(len(whole)))[-len(question) :]
        torch.testing.assert_close(ours, alone, atol=1e-5, rtol=1e-5)
    assert len(counted) == 1


def test_the_least_recently_used_are_dropped(setup_random):
    decoder, counted = prepare(setup_random).decoder, []
    read = reader(decoder, counted)
    size = read([BEGINNING])[0].held_bytes
    assert size
    kept = KeptPrompts(room=2 * size)
    first, second, third = (BEGINNING + n for n in range(3))
    for ids in (first, second, first, third):
        kept.of([ids], read)
    assert kept.held_bytes == 2 * size
    counted.clear()
    kept.of([first, third], read)
    assert not counted
    kept.of([first, second, third], read)
    assert counted == [1]
    assert kept.held_bytes == 2 * size


def test_what_has_no_room_is_read_each_time(setup_random):
    counted: list[int] = []
    read = reader(prepare(setup_random).decoder, counted)
    kept = KeptPrompts(room=0)
    for _ in range(2):
        assert [prompt.length for prompt in kept.of([BEGINNING], read)] == [len(BEGINNING)]
    assert len(counted) == 2
    assert kept.held_bytes == 0
