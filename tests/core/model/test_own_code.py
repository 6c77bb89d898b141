"""Code that comes with a model is not run, and nobody is asked whether it may be."""

import json
import shutil

import pytest

from longctx.core.common.errors import UsageError
from longctx.core.model.files import open_model_files


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_it_is_refused(model_folder, tmp_path, monkeypatch, file):
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    touched = tmp_path / "touched"
    (folder / "own.py").write_text(f"open({str(touched)!r}, 'w')\nclass Own: ...\n")
    values = json.loads((folder / file).read_text())
    if file == "config.json":
        values |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    else:
        values |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
    (folder / file).write_text(json.dumps(values))
    monkeypatch.setattr("builtins.input", lambda prompt="": pytest.fail("asked"))
    with pytest.raises(UsageError, match="code of its own, which is never run"):
        open_model_files(str(folder))
    assert not touched.exists()
