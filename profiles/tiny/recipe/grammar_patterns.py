"""The patterns of invented facts: sentences and questions with parts yet to be written in.

A part begins with a dollar sign: $s did something, $o is what it was done to, $did and $done are
forms of a verb, $n is a noun, $x is what is asked for; $did2, $do2, $n2 are other words of the same
meaning. The slots in braces are filled later. `grammar.py` chooses the parts.
"""

from longctx.profiles.tiny.recipe.templates import Fact

SUBJECTS = [
    "{person}",
    "{person}",
    "{person}",
    "{org}",
    "the {job}",
    "the {animal}",
    "{name}",
    "the {relation} of {person}",
]
OBJECTS = [
    "the {thing}",
    "the {thing}",
    "{small} {plural}",
    "{person2}",
    "{title}",
    "the {noun} of {city}",
    "{city}",
]
MEANS = [
    "with",
    "for",
    "in",
    "near",
    "from",
    "under",
    "behind",
    "without",
    "beside",
    "instead of",
    "because of",
    "against",
]
FIGURES = [
    "{num}",
    "{code}",
    "{big}",
    "{money}",
    "{measure}",
    "{date}",
    "{percent}",
    "{time}",
    "{year}",
    "{hex}",
    "{decimal}",
]
NAMED = [
    "{phrase}",
    "{name}",
    "{city}",
    "{person2}",
    "{word}",
    "{color}",
    "{food}",
    "{title}",
    "{org}",
    "{spot}",
]
OFFICES = ["the {thing}", "{city}", "{org}", "the {noun} of {land}", "{name}", "the {adj} {noun}"]
LABELLED = [
    "the {thing}",
    "{person}",
    "{city}",
    "{org}",
    "{name}",
    "the {adj} {noun}",
    "{key}",
    "{host}",
]
IN_A_STATE = ["the {thing}", "the {adj} {noun} of {city}", "{name}", "the {noun} of {person}"]
STATES = [  # verb, question, value
    ("lasts", "How long does $o last?", "{span}"),
    ("costs", "How much does $o cost?", "{money}"),
    ("lies", "Where does $o lie?", "{spot}"),
    ("weighs", "How much does $o weigh?", "{measure}"),
    ("begins at", "When does $o begin?", "{time}"),
    ("ends on", "When does $o end?", "{date}"),
    ("belongs to", "To whom does $o belong?", "{person2}"),
    ("dates from", "From what year is $o?", "{year}"),
    ("is painted", "What colour is $o?", "{color}"),
    ("consists of", "Of what does $o consist?", "{material}"),
    ("comes from", "Where does $o come from?", "{city2}"),
    ("leads to", "Where does $o lead?", "{city2}"),
    ("stands at", "At what does $o stand?", "{decimal}"),
    ("sounds like", "What does $o sound like?", "{phrase}"),
    ("is called", "What is the name of $o?", "{name2}"),
]

DEED = Fact(
    (
        "$s $did $o $where $when.",
        "$o was $done by $s $where $when.",
        "$when, $s $did $o $where.",
        "It was $s who $did $o $when $where.",
        "$where, $s $did $o.",
        "$s $did $o.",
        "$s would $do $o $when.",
    ),
    (
        ("$who $did2 $o?", "$s"),
        ("By whom was $o $done2?", "$s"),
        ("$what did $s $do2?", "$o"),
        ("When did $s $do2 $o?", "$when"),
        ("Where did $s $do2 $o?", "$where"),
        ("Where was $o $done2?", "$where"),
        ("When was $o $done2?", "$when"),
        ("$what was $done2 by $s?", "$o"),
    ),
)
DONE_WITH = Fact(  # $p: with, for, near ...
    (
        "$s was $done $p $x.",
        "$p $x, $s was $done.",
        "They $did $s $p $x.",
    ),
    (
        ("$P $what was $s $done2?", "$x"),
        ("$What was $s $done2 $p?", "$x"),
        ("$P $what did they $do2 $s?", "$x"),
        ("Who was $done2 $p $x?", "$s"),
    ),
)
DID_WITH = Fact(
    (
        "$s $did $o $p $x.",
        "$p $x, $s $did $o.",
        "$o was $done $p $x by $s.",
    ),
    (
        ("$P $what did $s $do2 $o?", "$x"),
        ("$What did $s $do2 $o $p?", "$x"),
        ("Who $did2 $o $p $x?", "$s"),
        ("What did $s $do2 $p $x?", "$o"),
    ),
)
OFFICE = Fact(
    (
        "$x $be the $n of $o.",
        "The $n of $o $be $x.",
        "$o has $x for its $n.",
        "As $n of $o they chose $x.",
        "$x, the $n of $o, was not there.",
        "They call $x the $n of $o.",
        "$o, whose $n $be $x, was there too.",
    ),
    (
        ("$who $ask the $n2 of $o?", "$x"),
        ("Of what $ask $x the $n2?", "$o"),
        ("$who $ask $o's $n2?", "$x"),
        ("Whom or what has $o for its $n2?", "$x"),
    ),
)
COUNT = Fact(  # $x: how many; $p: of what
    (
        "$s $did $x $p.",
        "$x $p were $done by $s.",
        "In all, $s $did $x $p {spot}.",
        "Of the $p, $x were $done by $s.",
        "$s had $x $p to $do.",
    ),
    (
        ("How many $p did $s $do2?", "$x"),
        ("How many $p were $done2 by $s?", "$x"),
        ("Who $did2 $x $p?", "$s"),
    ),
)
LABEL = Fact(
    (
        "The $n $done for $o is $x.",
        "$o has the $n $x.",
        "$x is what $o has as $n.",
        "$o: $n $x",
        "$n ($o) = $x",
        "$o -- $n -- $x",
        "For $o the $n is $x.",
        "At $o, $x is the $n.",
        "The $n $done on $o was $x.",
        "$o gets $x as $n.",
        "One knows $o by the $n $x.",
    ),
    (
        ("What is the $n2 of $o?", "$x"),
        ("Which $n2 does $o have?", "$x"),
        ("What $n2 has $o?", "$x"),
        ("What is $o's $n2?", "$x"),
        ("Give the $n2 for $o.", "$x"),
        ("What has the $n2 $x?", "$o"),
        ("For what is $x the $n2?", "$o"),
    ),
)
RELATIVE = Fact(  # $then: a second verb; every question has words of its own
    (
        "$s, who $did $o, $then {small} {plural}.",
        "The $n that $s $did was $x.",
        "$o, which $s $did, is {spot}.",
    ),
    (
        ("Who $did2 $o?", "$s"),
        ("What did $s $then2?", "{small} {plural}"),
        ("What was the $n2 that $s $did?", "$x"),
        ("What $n3 did $s $do2?", "$x"),
        ("Where is $o that $s $did3?", "{spot}"),
        ("How many {plural} did $s $then3?", "{small}"),
    ),
)
STATE = Fact(
    (
        "$o $verb $x.",
        "Most agree that $o $verb $x.",
        "$o, by the way, $verb $x.",
    ),
    (("$ask", "$x"), ("What $verb $x?", "$o")),
)
