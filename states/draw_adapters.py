"""One adapter registration as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from states.adapters import ADAPTER_TABLE, AdapterState
from states.draw_machine import START, Ends, around, machine_drawing
from states.draw_shapes import Anchor, Box, Drawing, Look, Route, Text

SIZE: Final = (984, 316)
_S = AdapterState
_WIDTH: Final = 100
_MIDDLES: Final[Mapping[AdapterState, int]] = {
    _S.PENDING: 162,
    _S.ACTIVE: 378,
    _S.RETIRING: 568,
    _S.CLEANUP: 734,
    _S.COMPLETED: 918,
}
_TOP, _BOTTOM = 132, 168
_ROW: Final = (_TOP + _BOTTOM) // 2

BOXES: Final[Mapping[str, Box]] = {
    START: Box(START, 18, _ROW - 9, 18, 18, Look.START),
    **{state: Box.around(state, (middle, _ROW), _WIDTH) for state, middle in _MIDDLES.items()},
}


def _above(x: int, y: int) -> Text:
    return Text(x, y - 4, Anchor.MIDDLE, grows_up=True)


def _to_the_next(source: AdapterState, target: AdapterState) -> Route:
    left, right = _MIDDLES[source] + _WIDTH // 2, _MIDDLES[target] - _WIDTH // 2
    return Route(((left, _ROW), (right, _ROW)), _above((left + right) // 2, _ROW))


ROUTES: Final[Mapping[Ends, Route]] = {
    (START, _S.PENDING): Route(((36, _ROW), (112, _ROW)), _above(74, _ROW)),
    (_S.PENDING, _S.ACTIVE): _to_the_next(_S.PENDING, _S.ACTIVE),
    (_S.ACTIVE, _S.RETIRING): _to_the_next(_S.ACTIVE, _S.RETIRING),
    (_S.RETIRING, _S.CLEANUP): _to_the_next(_S.RETIRING, _S.CLEANUP),
    (_S.CLEANUP, _S.COMPLETED): _to_the_next(_S.CLEANUP, _S.COMPLETED),
    (_S.PENDING, _S.RETIRING): Route(((182, _TOP), (182, 88), (568, 88), (568, _TOP)), _above(378, 88)),
    (_S.COMPLETED, _S.PENDING): Route(((918, _TOP), (918, 46), (142, 46), (142, _TOP)), _above(530, 46)),
    **{
        (state, state): Route(around(middle, _BOTTOM, 32), Text(middle, _BOTTOM + 40, Anchor.MIDDLE))
        for state, middle in _MIDDLES.items()
    },
}


def adapters_drawing() -> Drawing:
    """Every move of a registration."""
    labels: dict[Ends, list[tuple[str, str]]] = {}
    for row in ADAPTER_TABLE:
        labels.setdefault((row.source or START, row.target), []).append(
            (row.event, "if trainable" if row.needs_trainable else "")
        )
    return machine_drawing("The states of an adapter's registration", SIZE, BOXES, ROUTES, labels)
