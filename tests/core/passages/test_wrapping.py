"""Line ends that only fill a page's width, and those that end something."""

import random
import textwrap

import pytest

from longctx.core.passages.sentences import sentences
from longctx.core.passages.wrapping import unquoted, unwrapped

PROSE = (
    "The keeper of the light at Mirrel Haven was Marget Orrock, who came there in 1905 from the "
    "Isle of Wrey. She had a boat, a dog and nine volumes of cloud by her predecessor. Nobody "
    "asked her why. When the storm broke the seawall, she rowed out \u2013 alone \u2013 and "
    "Captain Tuddle followed her."
)


def wrapped(width: int, mark: str = "", end: str = "\n") -> str:
    return end.join(mark + line for line in textwrap.wrap(PROSE, width))


@pytest.mark.parametrize("width", [60, 72, 100])
@pytest.mark.parametrize(("mark", "end"), [("", "\n"), ("> ", "\n"), ("", "\r\n"), (">> ", "\r\n")])
def test_wrapped_prose_has_its_sentences_whole(width, mark, end):
    text = f"# A heading of the chapter\n\n{wrapped(width, mark, end)}{end}{end}Next."
    found = unwrapped(text)
    assert len(found) == len(text)
    cut = [" ".join(found[low:high].split()).removeprefix(mark) for low, high in sentences(found)]
    whole = [PROSE[low:high] for low, high in sentences(PROSE)]
    assert cut == ["# A heading of the chapter", *whole, "Next."]


@pytest.mark.parametrize("indent", ["    ", "- ", "12. "])
def test_prose_that_is_set_in_and_items_with_their_text_set_in(indent):
    rest = " " * len(indent)
    text = textwrap.fill(PROSE, 70, initial_indent=indent, subsequent_indent=rest)
    assert "\n" not in unwrapped(text)
    text = textwrap.fill(PROSE, 70, initial_indent="    ")  # the first line of a paragraph alone
    assert "\n" not in unwrapped(text)


STAYS = {
    "one line": PROSE,
    "paragraphs": "\n\n".join([PROSE, PROSE, PROSE]),
    "list": "".join(f"- the {n} boats came home at dawn, and nobody saw them.\n" for n in "abc"),
    "numbers": "".join(f"{n}. the boats came home at dawn, and nobody saw them.\n" for n in "123"),
    "code": (
        "from longctx.core.passages.near_lines import around, lines_of\n"
        "from longctx.core.passages.snippet import Snippet, places. \n"
        "import something as anything_that_is_long_enough_for_a_line\n"
        "if kept.values and not kept.text(number, start, end - start):\n"
        "    return self.places[number].value + kept.offset(1, 2).end\n"
    ),
    "log": "".join(
        f"2024-01-0{n} 10:00:0{n} the server started on port 8080. ok then now\n" for n in "123"
    ),
    "lower log": "warning: unused variable in the function.\nnote: seen first here, below\n" * 2,
    "table": "| the name of the boat | the number of its oars.  |\n| --- | --- |\n" * 3,
    "fence": "```\n" + wrapped(60) + "\n```",
    "verse": (
        "Of man's first disobedience, and the fruit\nOf that forbidden tree, whose mortal taste\n"
        "Brought death into the world, and all our woe.\nWith loss of Eden, till one greater man\n"
    ),
    "short verse": "so much depends\nupon a red wheel\nbarrow glazed.\nwith rain water\n",
    "chinese": "看守人说他看见了一艘船。他没有再说别的话,因为没有人问他任何事情也没有来看\n" * 3,
    "hindi": "रक्षक ने कहा कि उसने एक नाव देखी थी और वह रात भर जागता रहा।\n" * 3,
    "underlined": "The title of the chapter, which is a long one.\n" + "=" * 46 + "\n\nText.",
    "depths": "> the keeper came home at dawn and she saw nobody.\nthe captain saw it, and left.",
    "words": "the keeper wrote in his book that a boat came home at dawn\n" * 4,
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_what_is_no_wrapped_prose_stays_as_it_is(text):
    assert unwrapped(text) == text


def test_a_year_that_begins_a_line_is_no_number_of_a_list():
    text = (
        "The wheel was made of larch, and it was replaced in 1902 and then again in\n"
        "1968. The wheel drives a beater that everybody who works there calls Margit.\n"
        "it takes seven hours to turn the rag into pulp, and nobody waits for that."
    )
    found = [unwrapped(text)[start:end] for start, end in sentences(unwrapped(text))]
    assert found[0].endswith("again in 1968.")
    assert found[1].startswith("The wheel drives")


def test_quote_marks_before_a_text():
    assert [*map(unquoted, ["> a", "> > a", ">a", "a > b", "", ">"])] == [2, 4, 1, 0, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "x" + " " * 200_000 + "y.\nz",
        ">" * 200_000,
        "1" + "." * 200_000 + "x\na b.",
        "a-" * 100_000 + "\nb",
        "`" * 200_000 + "\n" + "-" * 200_000,
        "\n" * 200_000,
        "a. " + "\r" * 200_000 + "\nb",
    ],
    ids=range(7),
)
def test_strange_texts_take_no_long(text):
    assert len(unwrapped(text)) == len(text)


def test_of_random_texts_only_white_space_and_quote_marks_change():
    drawn = random.Random(3)
    parts = ["the", "Keeper.", "> ", "\n", "\r\n", "- ", "```", "1905", "a:", "é", "\t", " ", "船"]
    for _ in range(300):
        text = "".join(drawn.choice(parts) + " " * drawn.randrange(2) for _ in range(80))
        found = unwrapped(text)
        assert len(found) == len(text)
        assert all(
            a == b or (b == " " and a in "\n\r\t> ") for a, b in zip(text, found, strict=True)
        )
