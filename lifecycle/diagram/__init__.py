"""A run as a picture, drawn of its audit logs: edges by how often they were taken, what was refused marked."""

from __future__ import annotations

from lifecycle.diagram.counting import RunCounter
from lifecycle.diagram.drawing import Counted, Form, count_run, diagram_of, write_diagram

__all__ = ["Counted", "Form", "RunCounter", "count_run", "diagram_of", "write_diagram"]
