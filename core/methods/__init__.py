"""The reading methods, one file each; the folder is the registry.

`method: reform` loads `reform.py`, which defines `Options` and `Method` (see
`core/contracts/method.py`).
"""

from longctx.core.common.registry import Registry

_registry = Registry(__name__, "method")
names, load = _registry.names, _registry.load
