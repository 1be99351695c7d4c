"""Where bytes may be held: the names of the ledger, of records and of what is drawn of them."""

from __future__ import annotations

from typing import Final

DEVICE: Final = "device"
SAVER_HOST: Final = "saver_host"
SAVER_DISK: Final = "saver_disk"
BASE_FILE: Final = "base_file"
SNAPSHOTS: Final = "snapshots"
KEPT_GRADIENTS: Final = "kept_gradients"
TRANSPORT: Final = "transport"

PLACES: Final = (DEVICE, SAVER_HOST, SAVER_DISK, BASE_FILE, SNAPSHOTS, KEPT_GRADIENTS, TRANSPORT)
HOST_PLACES: Final = (SAVER_HOST, SNAPSHOTS, KEPT_GRADIENTS)
"""Places in host memory that belong to this process alone. A base file is page cache, once a node: it is not here."""

OTHERS: Final = "(others)"
"""Of a place of which only the sum is known, what no tag of this trainer holds."""
