"""A rollout engine's memory as two pictures: the engine as a whole, and one tag of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from states.draw_machine import START, Ends, around, machine_drawing
from states.draw_shapes import Anchor, Box, Drawing, Look, Route, Text
from states.engine_memory import EngineState, TagState
from states.engine_table import ENGINE_TABLE, TAG_TABLE

ENGINE_SIZE: Final = (760, 460)
TAG_SIZE: Final = (600, 276)
_S, _T = EngineState, TagState


def _above(x: int, y: int) -> Text:
    return Text(x, y - 4, Anchor.MIDDLE, grows_up=True)


def _below(x: int, y: int) -> Text:
    return Text(x, y + 4, Anchor.MIDDLE)


ENGINE_BOXES: Final[Mapping[str, Box]] = {
    START: Box(START, 486, 383, 18, 18, Look.START),
    _S.OPEN: Box.around(_S.OPEN, (130, 190), 110),
    _S.PAUSED: Box.around(_S.PAUSED, (380, 190), 110),
    _S.UPDATING: Box.around(_S.UPDATING, (650, 190), 110, Look.ACTIVITY),
    _S.LOST: Box.around(_S.LOST, (380, 382), 110, Look.FAULT),
}
ENGINE_ROUTES: Final[Mapping[Ends, Route]] = {
    (START, _S.LOST): Route(((486, 392), (435, 392)), _above(460, 392)),
    (_S.OPEN, _S.PAUSED): Route(((185, 181), (325, 181)), _above(255, 181)),
    (_S.PAUSED, _S.OPEN): Route(((325, 199), (185, 199)), _below(255, 199)),
    (_S.PAUSED, _S.UPDATING): Route(((435, 181), (595, 181)), _above(515, 181)),
    (_S.UPDATING, _S.PAUSED): Route(((595, 199), (435, 199)), _below(515, 199)),
    (_S.UPDATING, _S.OPEN): Route(((705, 190), (734, 190), (734, 36), (34, 36), (34, 190), (75, 190)), _above(380, 36)),
    (_S.OPEN, _S.OPEN): Route(around(130, 172, -30), _above(130, 142)),
    (_S.PAUSED, _S.PAUSED): Route(around(380, 172, -30), _above(380, 142)),
    (_S.UPDATING, _S.UPDATING): Route(around(650, 172, -30), _above(650, 142)),
    (_S.OPEN, _S.LOST): Route(((110, 208), (110, 392), (325, 392)), _below(220, 392)),
    (_S.LOST, _S.OPEN): Route(((325, 372), (150, 372), (150, 208)), _above(240, 372)),
    (_S.PAUSED, _S.LOST): Route(((366, 208), (366, 364)), Text(358, 271, Anchor.END)),
    (_S.LOST, _S.PAUSED): Route(((394, 364), (394, 208)), Text(402, 278)),
    (_S.UPDATING, _S.LOST): Route(((650, 208), (650, 372), (435, 372)), _above(540, 372)),
    (_S.LOST, _S.LOST): Route(around(380, 400, 30), Text(410, 412)),
}
TAG_BOXES: Final[Mapping[str, Box]] = {
    _T.RESIDENT: Box.around(_T.RESIDENT, (110, 70), 120),
    _T.RELEASED: Box.around(_T.RELEASED, (490, 70), 120),
    _T.DISCARDED: Box.around(_T.DISCARDED, (300, 212), 120),
}
TAG_ROUTES: Final[Mapping[Ends, Route]] = {
    (_T.RESIDENT, _T.RELEASED): Route(((170, 61), (430, 61)), _above(300, 61)),
    (_T.RELEASED, _T.RESIDENT): Route(((430, 79), (170, 79)), _below(300, 79)),
    (_T.RESIDENT, _T.DISCARDED): Route(((90, 88), (90, 222), (240, 222)), Text(232, 226, Anchor.END)),
    (_T.DISCARDED, _T.RESIDENT): Route(((240, 202), (130, 202), (130, 88)), _above(186, 202)),
    (_T.RELEASED, _T.DISCARDED): Route(((490, 88), (490, 212), (360, 212)), _above(426, 212)),
}


def engine_drawing() -> Drawing:
    """Every move of an engine as a whole. Rows that are settled are left out."""
    labels: dict[Ends, list[tuple[str, str]]] = {(START, _S.LOST): []}
    for row in ENGINE_TABLE:
        events = labels.setdefault((row.source, row.target), []) if not row.settled else []
        if (row.event, "") not in events:
            events.append((row.event, ""))
    return machine_drawing("The states of a rollout engine", ENGINE_SIZE, ENGINE_BOXES, ENGINE_ROUTES, labels)


def tag_drawing() -> Drawing:
    """Every move of one memory tag. ``unknown`` is left by a probe alone, which says what it is."""
    labels: dict[Ends, list[tuple[str, str]]] = {}
    for row in TAG_TABLE:
        mirror = {True: "with a mirror", False: "without a mirror", None: ""}[row.mirrored]
        labels.setdefault((row.source, row.target), []).append((row.event, mirror))
    return machine_drawing("The states of a memory tag of an engine", TAG_SIZE, TAG_BOXES, TAG_ROUTES, labels)
