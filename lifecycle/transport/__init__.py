"""Ways of a tensor's bytes to an engine in another process, and who still holds some of them. See docs/transport.md."""

from __future__ import annotations

from lifecycle.transport.buckets import ALIVE, Bucket, BucketTransport
from lifecycle.transport.layout import Piece
from lifecycle.transport.receivers import ChoosesTransport, HoldsTransport, Note, Receivers, TransportBroken

__all__ = [
    "ALIVE",
    "Bucket",
    "BucketTransport",
    "ChoosesTransport",
    "HoldsTransport",
    "Note",
    "Piece",
    "Receivers",
    "TransportBroken",
]
