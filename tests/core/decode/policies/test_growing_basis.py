"""Models whose frequencies depend on the length: they change while an answer grows."""

import numpy as np
from decoded import ORDER, WIDE, read, step

from longctx.core.decode.policies import choose, dense, load
from longctx.core.model.adapter import Decoder


def test_pages_that_gave_way_do_not_come_back_with_a_new_basis(make_model):
    """What is held is the same whether the basis changes or not."""
    decoder = Decoder(make_model("llama-dynamic", vocab_size=400))
    chosen = choose("raas:budget=96", {})
    policy = load("raas").Policy(chosen.options, read(decoder, 20, 80, plain=True), WIDE)
    found = [step(decoder, policy, token) for token in ORDER[20:130]]
    assert np.isfinite(found).all()
    assert policy.spent().held == 20 + 64
    everything = dense.Policy(dense.Options(), read(decoder, 20, 110, plain=True), WIDE)
    others = [step(decoder, everything, token) for token in ORDER[20:130]]
    assert np.abs(np.array(found[:64]) - others[:64]).max() < 1e-3
    assert np.abs(found[-1] - others[-1]).max() > 1e-3
