"""What decides the results of a run: whatever changes an answer is told apart."""

from dataclasses import replace

from longctx.core.engine.setup import Setup, prepare
from longctx.core.measure.eval.asking import How
from longctx.core.measure.eval.run_settings import of_asking, of_model


def test_another_prompt_or_number_format_is_another_run():
    engine = prepare(Setup(device="cpu", dtype="fp32"))
    usual = of_model(engine)
    assert usual["weights"] == engine.files.fingerprint().weights
    prompt = replace(engine.profile.prompt, question="Q: {question} A:")
    assert of_model(replace(engine, profile=replace(engine.profile, prompt=prompt))) != usual
    assert of_model(prepare(Setup(device="cpu", dtype="bf16"))) != usual


def test_another_way_of_asking_is_another_run():
    engine = prepare(Setup(device="cpu", dtype="fp32"))
    hows = [How(), How(gather=500), How(decode="quest"), How(gather_by="method")]
    told = [of_asking(engine, how) for how in hows]
    told += [of_asking(prepare(Setup(device="cpu", dtype="fp32", method="full")), How())]
    assert all(one not in told[:place] for place, one in enumerate(told))
