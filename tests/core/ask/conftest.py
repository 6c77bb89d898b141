"""What the tests of answering share: the small random model, with its own profile."""

import pytest

from longctx.core.engine.choice import Setup


@pytest.fixture(scope="module")
def setup(model_folder) -> Setup:
    profile = str(model_folder / "profile.yaml")
    return Setup(model=str(model_folder), profile=profile, device="cpu", dtype="fp32", threads=1)
