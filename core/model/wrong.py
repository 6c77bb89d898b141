"""What is wrong with what a user names as a model, and what to do about it.

Each function says it of one kind of name; `files.py` and `weights.py` raise what they give.
"""

from pathlib import Path

from longctx.core.common import pasting
from longctx.core.common.errors import UsageError
from longctx.core.common.foreign import reason
from longctx.core.common.nearest import nearest
from longctx.core.profile import profile

GGUF, SAFETENSORS, CONFIG = ".gguf", ".safetensors", "config.json"
UNSAFE = (".bin", ".pt", ".pth", ".ckpt")  # weights that can run code when they are opened
PROFILES = (".yaml", ".yml")
ADDRESSES = "https://huggingface.co/", "http://huggingface.co/", "https://hf.co/", "huggingface.co/"
BUNDLED = "Use 'tiny' (bundled), a folder or a GGUF file."


def name(given: str) -> UsageError:
    """Of a name that is neither a folder nor owner/model."""
    what = f"no model {given!r}"
    if found := profile.named(given):
        return _profile(what, found)
    if given.lower().endswith(PROFILES):
        why, option = "it is a profile's file", pasting.option("--profile", given)
        return UsageError(what, why, f"Give {option}, and name the model with --model.")
    for address in ADDRESSES:
        if given.startswith(address):
            hub = "/".join(given.removeprefix(address).split("/")[:2])
            return UsageError(what, "it is an address", f"Use {pasting.option('--model', hub)}.")
    path = Path(given)
    if path.is_file():
        return _file(what, path)
    separated = given.count("/") != 1 and any(mark in given for mark in "/\\")
    if separated or given.startswith((".", "/", "~")):
        return UsageError(what, "there is no such folder", f"Check the path. {BUNDLED}")
    why = "it is neither a folder nor a hub name (owner/model)"
    return UsageError(what, why, meant(given) or BUNDLED)


def meant(given: str) -> str:
    """A known model's name that is nearly this one, as a question; empty if there is none."""
    full = {model.lower(): model for each in profile.shipped() for model in each.models}
    known = {**{Path(short).name: model for short, model in full.items()}, **full}
    near = nearest(given, known, enough=0.8)
    return f"Did you mean {known[near]!r}?" if near else ""


def _profile(what: str, found: profile.Profile) -> UsageError:
    """Of a profile's name: the models that it is for."""
    alike = [each for each in profile.shipped() if each.models and each.shape == found.shape]
    models = found.models or (alike[0].models if alike else ())
    options = [pasting.option("--model", models[0] if models else "MODEL")]
    if not found.models:  # nothing else selects it
        options.append(pasting.option("--profile", found.name))
    remedy = f"Use {' '.join(options)}, or the folder of a copy of it."
    return UsageError(what, f"that is a profile, for {' or '.join(models) or 'a model'}", remedy)


def _file(what: str, path: Path) -> UsageError:
    """Of a file: a model is a folder, the one that it is in if that has a config.json."""
    inside = (path.parent / CONFIG).is_file() and path.suffix in (".json", SAFETENSORS, *UNSAFE)
    remedy = "Name a folder in Hugging Face format, or a hub name (owner/model)."
    if inside:
        remedy = f"Use {pasting.option('--model', str(path.parent))}."
    return UsageError(what, "it is a file, and no model is read from such a file", remedy)


def hub(given: str, error: Exception) -> UsageError:
    """Of a name that the hub does not give, with what its library raised."""
    from huggingface_hub import errors
    from huggingface_hub.constants import HF_HUB_OFFLINE

    what, suggestion = f"cannot get model {given!r} from the hub", meant(given)
    if isinstance(error, errors.GatedRepoError):
        why = "its owner gives it only to those who agree to terms"
        return UsageError(what, why, "Agree on its page of the hub, and log in (`hf auth login`).")
    if isinstance(error, errors.RepositoryNotFoundError):
        why = "there is none of this name, or it is private"
        return UsageError(what, why, suggestion or "Check the name.")
    remedy = "Check the name and the network, or name a local folder."
    if HF_HUB_OFFLINE:
        why = "it is not on this machine, and the hub may not be asked (HF_HUB_OFFLINE is set)"
        remedy = "Check the name, unset HF_HUB_OFFLINE, or name a local folder."
    elif isinstance(error, errors.LocalEntryNotFoundError):
        why = "it is not on this machine, and the hub cannot be reached"
    else:
        why = reason(error)
    return UsageError(what, why, f"{suggestion} {remedy}".strip())


def folder(path: Path) -> UsageError:
    """Of a folder without a config.json."""
    what, why = f"no model in {str(path)!r}", f"it has no {CONFIG}"
    if found := _ending(path, GGUF):
        return _gguf(what, f"{why}, but a GGUF file", found[0])
    inner = sorted(each.parent for each in path.glob(f"*/{CONFIG}"))
    inner += sorted(each.parent for each in path.glob(f"snapshots/*/{CONFIG}"))
    if inner:
        remedy = f"Use {pasting.option('--model', str(inner[0]))}."
        return UsageError(what, f"{why}, but a folder in it has one", remedy)
    if not any(path.iterdir()):
        why += ", nor anything else"
    return UsageError(what, why, "Name a folder in Hugging Face format.")


def weights(path: Path, wanted: str) -> UsageError:
    """Of a folder with a config.json and without the weights that are wanted."""
    what = f"cannot use the model in {str(path)!r}"
    if found := _ending(path, SAFETENSORS):
        why = f"it has {found[0].name!r}, but no {wanted}"
        return UsageError(what, why, "Fetch it again: a part is missing.")
    none = "it has no safetensors weights"
    if found := _ending(path, GGUF):
        return _gguf(what, f"{none}, but a GGUF file", found[0])
    if found := _ending(path, *UNSAFE):
        why = f"{none}, only {found[0].name!r}, and such a file can run code when it is opened"
        remedy = "Fetch the same model in safetensors, or convert it first."
        return UsageError(what, why, remedy)
    why = f"{none} ({wanted}) and no others"
    return UsageError(what, why, "Fetch it again, with its weights.")


def _gguf(what: str, why: str, file: Path) -> UsageError:
    return UsageError(what, why, f"Use {pasting.option('--model', str(file))}.")


def _ending(path: Path, *endings: str) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.suffix.lower() in endings)
