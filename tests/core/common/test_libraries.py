"""transformers is quiet while we work in somebody's process, and afterwards as it was."""

import transformers

from longctx.core.common import libraries


def test_it_is_quiet_for_a_while_and_then_as_it_was(monkeypatch):
    monkeypatch.setattr(libraries, "_prepared", False)
    logging = transformers.utils.logging
    verbosity, draws = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_info()
        logging.enable_progress_bar()
        with libraries.quiet(), libraries.quiet():
            assert logging.get_verbosity() == logging.ERROR
            assert not logging.is_progress_bar_enabled()
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(verbosity)
        if not draws:
            logging.disable_progress_bar()
