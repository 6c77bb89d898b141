"""Public sets of others' questions, asked of any longctx and scored by one rule without a judge."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from public_sets.command import main

if __name__ == "__main__":
    sys.exit(main())
