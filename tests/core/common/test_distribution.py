"""The command that installs missing packages, in the environment of this process."""

import sys

import pytest

from longctx.core.common import distribution


@pytest.mark.parametrize(
    ("receipt", "command"),
    [
        (None, "pip install {}"),
        ("pipx_metadata.json", "pipx inject longctx-reader {}"),
        ("uv-receipt.toml", "uv pip install --python '{prefix}' {}"),
    ],
)
def test_packages_are_installed_by_what_made_the_environment(
    tmp_path, monkeypatch, receipt, command
):
    prefix = tmp_path / "my tools" / "longctx-reader"
    prefix.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    if receipt:
        (prefix / receipt).touch()
    found = distribution.install_command("oxmsg", "pypdfium2")
    assert found == command.format("python-oxmsg pypdfium2", prefix=prefix)


def test_what_is_not_installed_has_no_version():
    assert distribution.version("no-such-package") is None
    assert distribution.version() == distribution.version("longctx_reader")
