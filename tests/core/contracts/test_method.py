"""The contract of a method refuses what does not meet it, when the class is made."""

from dataclasses import dataclass

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.contracts.method import (
    Capabilities,
    Growing,
    Method,
    MethodOptions,
    Recallable,
    Scoring,
)

EVERY = ("attend", "restore", "snapshot", "snapshot_bytes")


def define(*bases: type, lacks: str = "", **more: object) -> type:
    """A class with all that every method needs, but one."""
    members = {name: lambda self: None for name in EVERY if name != lacks}
    return type("Made", bases, {**members, **more})


@pytest.mark.parametrize("name", EVERY)
def test_what_every_method_does_has_to_be_there(name):
    assert define(Method).capabilities == Capabilities()
    with pytest.raises(TypeError, match=rf"Made lacks {name}$"):
        define(Method, lacks=name)


@pytest.mark.parametrize(
    ("base", "names"),
    [(Scoring, ["embed", "score"]), (Recallable, ["recall"]), (Growing, ["fill"])],
)
def test_what_some_do_has_to_be_there_for_them(base, names):
    bases = (base,) if issubclass(base, Method) else (Method, base)
    assert issubclass(define(*bases, **dict.fromkeys(names, print)), base)
    with pytest.raises(TypeError, match=rf"Made lacks {', '.join(names)}$"):
        define(*bases)


def test_every_way_says_how_many_layers_run():
    members = dict.fromkeys(["embed", "score"], print)
    with pytest.raises(TypeError, match=r"Made lacks depth$"):
        type("Made", (Scoring,), members)
    assert type("Made", (Scoring,), {**members, "depth": 3})().depth == 3


def test_what_neither_scores_nor_recalls_or_gathers_everything_is_not_searched():
    recalls = define(Method, Recallable, recall=print)
    assert recalls(None, ()).searches
    assert not define(Method)(None, ()).searches
    assert not define(recalls, gather=None)(None, ()).searches
    assert not define(recalls, capabilities=Capabilities(searches=False))(None, ()).searches


def test_a_base_for_several_methods_may_leave_members_to_them():
    class Base(Method, abstract=True):
        def attend(self, layer, q, k, v): ...

    with pytest.raises(TypeError, match="Whole lacks restore, snapshot, snapshot_bytes"):

        class Whole(Base): ...


def test_options_have_what_bench_asks_for():
    @dataclass(frozen=True)
    class Evicting(MethodOptions):
        chunk: int = 8
        budget: int = 4

    @dataclass(frozen=True)
    class Keeping(MethodOptions):
        chunk: int = 8

    assert Evicting().fitted(5) == Evicting() == Evicting().reading == Evicting.measured(3, 5)
    assert Evicting().sized(None, 6) == Evicting().sized(6, None) == Evicting(6, 6)
    assert Evicting().sized(3, 2) == Evicting(3, 2)
    assert Evicting().sized(None, None) == Evicting()
    assert Keeping().sized(3, None) == Keeping(3)
    with pytest.raises(UsageError, match="--budget is not for this method"):
        Keeping().sized(None, 2)
