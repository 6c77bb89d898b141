"""Profiles: what is known of a model beyond its own files: prompt, heads, sizes.

A profile is one YAML file, shipped in `profiles/` or the user's own. It is read here alone, into
frozen dataclasses; a key that nothing reads is an error. Knows no options of methods and decode
policies: they are checked by those that they are for.
"""

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from longctx.core.common.errors import UsageError
from longctx.core.common.records import Reader
from longctx.core.profile import safe_yaml
from longctx.core.profile.sampling import Sampling

PLACE = "{question}"  # where the template takes the user's words


@dataclass(frozen=True)
class PromptTemplate:
    """The text around a document and its question; special tokens may be written in it.

    Attributes:
        prefix: stands before the document.
        question: stands after it; `{question}` is replaced by the user's words.
    """

    prefix: str = ""
    question: str = "\n\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True)
class Chat:
    """The model's own chat template is the text around a document and its question.

    Attributes:
        chat: says so in a profile; true.
        prefix: stands before the document, in the user's message.
        question: stands after it there; `{question}` is replaced by the user's words.
        chat_options: variables of the template, beside `enable_thinking: false`.
    """

    chat: bool = True
    prefix: str = ""
    question: str = "\n\nQuestion: {question}"
    chat_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """One model's settings.

    Attributes:
        name: what `--profile` calls it.
        models: the model names and hub names that it is chosen for.
        description: one line for `longctx profiles`.
        window: tokens that the model was trained on; None: its config's max_position_embeddings.
        prompt: the text around document and question; None: the model's chat template if it has
            one.
        method: the reading method that is used unless another is named.
        methods: options by method, overriding the method's own defaults.
        max_new_tokens: length limit of an answer.
        sampling: how an answer is chosen and what ends it, unless the user says otherwise.
        decode: the decode policy that is used unless another is named, as `--decode` takes it;
            None: the usual one.
        decoding: options by decode policy, overriding the policy's own defaults.
        gather_by: what passages are gathered by where they are recomputed or looked for, as
            `--gather-by` takes it.
    """

    name: str
    models: tuple[str, ...] = ()
    description: str = ""
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
    """Makes a dataclass of a mapping; arguments and errors are those of `records.Reader`."""
    return Reader(remedy).read(kind, values, where)


def parse(values: Any, where: str) -> Profile:
    """Makes a profile of parsed YAML.

    Raises:
        UsageError: an unknown key, a value out of range, or a template without a place for the
            question; where it is a document's own, also what no YAML that is read can hold.
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
        UsageError: not plain YAML, or as `parse`.
    """
    return parse(safe_yaml.read(text, where), where)


def shipped() -> list[Profile]:
    """All profiles that come with the package, the bundled model's first."""
    root = resources.files("longctx.profiles")
    files = [item for item in root.iterdir() if item.name.endswith(".yaml")]
    files.append(root / "tiny" / "profile.yaml")
    profiles = [load(item.read_text("utf-8"), f"profile {item.name}") for item in files]
    return sorted(profiles, key=lambda profile: (profile.name != "tiny", profile.name))


def find(name: str | None, model: str) -> Profile:
    """The profile of a name or file, or the one made for a model.

    Args:
        name: a shipped profile's name or a YAML file; None: choose by model.
        model: the model's name as the user gave it.

    Raises:
        UsageError: no such profile, or none for this model.
    """
    if name is not None and name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UsageError(f"no profile file {name!r}", "", "Check the path of --profile.")
        return parse(safe_yaml.read_file(Path(name), f"profile {name}"), f"profile {name}")
    profile = named(name) if name else made_for(model)
    if profile:
        return profile
    known = shipped()
    wanted = f"no profile named {name!r}" if name else f"no profile for model {model!r}"
    raise UsageError(
        wanted,
        f"there are {', '.join(profile.name for profile in known)}",
        "Give --profile one of these or a YAML file of your own (docs/profiles.md).",
    )


def named(name: str) -> Profile | None:
    """The shipped profile of a name."""
    return next((profile for profile in shipped() if profile.name == name), None)


def made_for(model: str) -> Profile | None:
    """The shipped profile that was made for a model."""
    # A local copy of a hub model is recognised by its folder's name.
    names = {model.lower(), Path(model).name.lower()}
    return next((profile for profile in shipped() if names & _names(profile)), None)


def _names(profile: Profile) -> set[str]:
    full = {name.lower() for name in profile.models}
    return full | {Path(name).name for name in full}
