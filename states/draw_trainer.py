"""The trainer's machine as a picture: where its states and arrows lie. What there is to draw comes from the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from states.draw_machine import Ends, around, machine_drawing
from states.draw_shapes import Anchor, Box, Drawing, Look, Route, Text
from states.names import TrainerState
from states.render import RESTING_BOX, arrows

SIZE: Final = (740, 792)
_S = TrainerState

BOXES: Final[Mapping[str, Box]] = {
    RESTING_BOX: Box(RESTING_BOX, 16, 16, 708, 590, Look.GROUP, "an arrow to it leads to the state that was left"),
    _S.AWAKE: Box.around(_S.AWAKE, (370, 250)),
    _S.SLEEPING: Box.around(_S.SLEEPING, (370, 390)),
    _S.OFFLOADED_CPU: Box.around(_S.OFFLOADED_CPU, (110, 530)),
    _S.OFFLOADED_DISK: Box.around(_S.OFFLOADED_DISK, (630, 530)),
    _S.ADAPTER_RECONCILING: Box.around(_S.ADAPTER_RECONCILING, (190, 750), 176, Look.ACTIVITY),
    _S.FAULTED: Box.around(_S.FAULTED, (577, 750), look=Look.FAULT),
}
"""The states, and the box around those in which the trainer rests."""

ROUTES: Final[Mapping[Ends, Route]] = {
    (_S.AWAKE, _S.SLEEPING): Route(((348, 268), (348, 372)), Text(340, 300, Anchor.END)),
    (_S.SLEEPING, _S.AWAKE): Route(((392, 372), (392, 268)), Text(400, 307)),
    (_S.SLEEPING, _S.OFFLOADED_CPU): Route(
        ((348, 408), (348, 474), (140, 474), (140, 512)), Text(152, 470, grows_up=True)
    ),
    (_S.SLEEPING, _S.OFFLOADED_DISK): Route(
        ((392, 408), (392, 474), (600, 474), (600, 512)), Text(590, 470, Anchor.END, grows_up=True)
    ),
    (_S.OFFLOADED_CPU, _S.AWAKE): Route(((70, 512), (70, 250), (300, 250)), Text(82, 246, grows_up=True)),
    (_S.OFFLOADED_DISK, _S.AWAKE): Route(
        ((670, 512), (670, 250), (440, 250)), Text(660, 246, Anchor.END, grows_up=True)
    ),
    (_S.AWAKE, _S.AWAKE): Route(around(370, 232, -32), Text(402, 34)),
    (_S.SLEEPING, _S.SLEEPING): Route(((440, 380), (470, 380), (470, 400), (440, 400)), Text(480, 375)),
    (_S.OFFLOADED_CPU, _S.OFFLOADED_CPU): Route(around(110, 548, 28), Text(140, 552)),
    (_S.OFFLOADED_DISK, _S.OFFLOADED_DISK): Route(around(630, 548, 28), Text(600, 552, Anchor.END)),
    (RESTING_BOX, _S.ADAPTER_RECONCILING): Route(((164, 606), (164, 732)), Text(156, 650, Anchor.END)),
    (_S.ADAPTER_RECONCILING, RESTING_BOX): Route(((216, 732), (216, 606)), Text(224, 616)),
    (RESTING_BOX, _S.FAULTED): Route(((550, 606), (550, 732)), Text(542, 650, Anchor.END)),
    (_S.FAULTED, RESTING_BOX): Route(((604, 732), (604, 606)), Text(612, 650)),
    (_S.ADAPTER_RECONCILING, _S.FAULTED): Route(((278, 750), (507, 750)), Text(392, 756, Anchor.MIDDLE)),
}
"""How each arrow goes, by where it leaves and where it leads."""

REFUSED: Final[Mapping[str, Route]] = {
    _S.AWAKE: Route(((318, 232), (318, 196)), Text(304, 186, Anchor.END)),
    _S.SLEEPING: Route(((300, 390), (276, 390)), Text(262, 383, Anchor.END)),
    _S.OFFLOADED_CPU: Route(((180, 530), (204, 530)), Text(218, 523)),
    _S.OFFLOADED_DISK: Route(((560, 530), (536, 530)), Text(522, 523, Anchor.END)),
    _S.ADAPTER_RECONCILING: Route(((130, 768), (130, 786)), Text(144, 780)),
    _S.FAULTED: Route(((547, 768), (547, 786)), Text(561, 780)),
}
"""Where what a state refused in a run is marked."""


def trainer_drawing() -> Drawing:
    """Every move of the trainer. Settled and refusing rows are left out."""
    labels = {ends: [(one.event, one.name) for one in edges] for ends, edges in arrows().items()}
    return machine_drawing("The trainer's states, and the events that move it", SIZE, BOXES, ROUTES, labels)
