"""A client of the SDK, connected in memory to a server over a library of the random model."""

from contextlib import asynccontextmanager

import pytest
from mcp import Client

import longctx
from longctx.cli.mcp.allowed import Allowed
from longctx.cli.mcp.served import Served
from longctx.cli.mcp.server import LibraryServer


@pytest.fixture(params=["auto", "legacy"])
def mode(request) -> str:
    """The protocol: of 2026, and with the handshake of before."""
    return request.param


@pytest.fixture
def connect(library, model_folder, models_loaded_once, mode):
    """f(*allowed): a context with a client of a server over a copy of the shelf."""
    profile = str(model_folder / "profile.yaml")

    @asynccontextmanager
    async def run(*allowed, model=None):
        model = model or longctx.Model(str(model_folder), profile=profile, device="cpu")
        with model, longctx.Library(library, model=model) as opened:
            server = LibraryServer(Served(opened, Allowed(allowed)), "1.2.3")
            async with Client(server, mode=mode) as client:
                yield client

    return run
