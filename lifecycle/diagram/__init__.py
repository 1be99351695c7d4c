"""A run as a picture, drawn of its audit logs: edges by how often they were taken, what was refused marked."""

from __future__ import annotations

from lifecycle.diagram.counting import RunCounter

__all__ = ["RunCounter"]
