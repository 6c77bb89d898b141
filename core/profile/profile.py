"""Profiles: what is known about a model beyond its own files: prompt, heads, sizes.

A profile is one YAML file, shipped in `profiles/` or the user's own. Only this module reads it,
into frozen dataclasses; an unknown key is an error. The options of methods and decode policies
are checked by these, not here.
"""

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.records import Reader
from longctx.core.profile import safe_yaml
from longctx.core.profile.described import Described, Shape
from longctx.core.profile.sampling import Sampling

OWN = ("tiny",)  # models with a folder of their own in profiles/
PLACE = "{question}"  # where the template has the user's words


@dataclass(frozen=True)
class PromptTemplate:
    """The text around a document and its question; it may contain special tokens.

    Attributes:
        prefix: text before the document.
        question: text after it; `{question}` is replaced by the user's words.
    """

    prefix: str = ""
    question: str = "\n\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True)
class Chat:
    """The model's own chat template as the text around a document and its question.

    Attributes:
        chat: marks this kind of prompt in a profile; always true.
        prefix: text before the document, in the user's message.
        question: text after it, in the same message; `{question}` is replaced by the user's words.
        chat_options: variables of the template, in addition to `enable_thinking: false`.
    """

    chat: bool = True
    prefix: str = ""
    question: str = "\n\nQuestion: {question}"
    chat_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """One model's settings.

    Attributes:
        name: its name, as for `--profile`.
        models: the model names and hub names that select it; none: it is used only by its name.
        description: one line for `longctx profiles`.
        shape: of the models that it is for; a model of another shape is never given it unasked.
        window: the model's window in tokens; None for its config's max_position_embeddings.
        prompt: the text around document and question; None for the model's chat template, if it
            has one.
        method: the default reading method.
        methods: options by method, overriding the method's own defaults.
        max_new_tokens: length limit of an answer.
        sampling: how tokens are chosen and what ends an answer, by default.
        decode: the default decode policy, as `--decode` takes it; None for the usual one.
        decoding: options by decode policy, overriding the policy's own defaults.
        gather_by: the gather source by which passages are recomputed or found, as `--gather-by`
            takes it.
    """

    name: str
    models: tuple[str, ...] = ()
    description: str = ""
    shape: Shape | None = None
    window: int | None = None
    prompt: PromptTemplate | Chat | None = None
    method: str = "reform"
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    max_new_tokens: int = 64
    sampling: Sampling = field(default_factory=Sampling)
    decode: str | None = None
    decoding: dict[str, dict[str, Any]] = field(default_factory=dict)
    gather_by: str = "hybrid"


def build(kind: type, values: Any, where: str, remedy: str = "Correct the profile.") -> Any:
    """Makes a dataclass from a mapping; arguments and errors are those of `records.Reader`."""
    return Reader(remedy).read(kind, values, where)


def parse(values: Any, where: str) -> Profile:
    """Makes a profile from parsed YAML.

    Raises:
        UsageError: an unknown key, a value out of range, or a template without a place for the
            question; for a document's stored profile, also any value that our YAML cannot hold.
    """
    try:
        safe_yaml.require_json(values)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {where}", str(error), "Correct it.") from error
    values = dict(values) if isinstance(values, dict) else values
    if isinstance(values, dict) and "prompt" in values:
        values["prompt"] = _parse_prompt(values["prompt"], f"`prompt` of {where}")
    if isinstance(values, dict) and "sampling" in values:
        values["sampling"] = _parse_sampling(values["sampling"], f"`sampling` of {where}")
    profile = build(Profile, values, where)
    if profile.prompt and PLACE not in profile.prompt.question:
        raise UsageError(
            f"`prompt.question` of {where} has no place for the question",
            repr(profile.prompt.question),
            f"Write {PLACE} in it.",
        )
    return profile


def _parse_prompt(values: Any, where: str) -> PromptTemplate | Chat:
    if not isinstance(values, dict) or "chat" not in values:
        return build(PromptTemplate, values, where)
    if values["chat"] is False:
        return build(PromptTemplate, {key: values[key] for key in values if key != "chat"}, where)
    return build(Chat, values, where)


def _parse_sampling(values: Any, where: str) -> Sampling:
    if isinstance(values, dict) and values.get("max_new_tokens") is not None:
        raise UsageError(
            f"unknown key 'max_new_tokens' in {where}", "", "Write it in the profile itself."
        )
    return build(Sampling, values, where)


def load(text: str, where: str) -> Profile:
    """Reads a profile from YAML text.

    Raises:
        UsageError: not plain YAML, or see `parse`.
    """
    return parse(safe_yaml.read(text, where), where)


def shipped() -> list[Profile]:
    """All profiles shipped with the package, those of its own models first."""
    root = resources.files("longctx.profiles")
    files = [item for item in root.iterdir() if item.name.endswith(".yaml")]
    files += [root / name / "profile.yaml" for name in OWN]
    profiles = [load(item.read_text("utf-8"), f"profile {item.name}") for item in files]
    return sorted(profiles, key=lambda profile: (profile.name not in OWN, profile.name))


def find(name: str) -> Profile:
    """The profile that the user names.

    Args:
        name: a shipped profile's name or a YAML file.

    Raises:
        UsageError: there is no such profile.
    """
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UsageError(f"no profile file {name!r}", "", "Check the path of --profile.")
        return parse(safe_yaml.read_file(Path(name), f"profile {name}"), f"profile {name}")
    if profile := named(name):
        return profile
    raise UsageError(
        f"no profile named {name!r}",
        f"there are {', '.join(profile.name for profile in shipped())}",
        "Give --profile one of these or a YAML file of your own (docs/profiles.md).",
    )


def named(name: str) -> Profile | None:
    """The shipped profile with a name, if any."""
    return next((profile for profile in shipped() if profile.name == name), None)


def made_for(model: Described) -> Profile | None:
    """The shipped profile made for a model: of its shape, and of its name, if any is.

    A shape alone is enough where a single profile has it: then it is a fine-tuned model's.
    """
    fitting = [each for each in shipped() if each.models and each.shape == model.shape]
    by_name = [each for each in fitting if is_called(model, each)]
    if by_name:
        return by_name[0]
    return fitting[0] if len(fitting) == 1 else None


def is_called(model: Described, profile: Profile) -> bool:
    """Whether one of a model's names is one that a profile is made for."""
    full = {name.lower() for name in profile.models}
    called = {name.lower() for name in model.names}
    return bool(called & (full | {Path(name).name for name in full}))
