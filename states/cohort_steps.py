"""What a turn of a cohort is planned from, and the moves that bring one member from a state to another.

A cohort is several trainers on one device (actor, critic, teacher) that take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from states.handover_needs import TrainerBytes
from states.names import OFFLOADED, TrainerEvent, TrainerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One trainer of a cohort, where it is and what it holds.

    Attributes:
        name: as the cohort knows it.
        state: the state that it is in.
        held: what its events give and take, from that state on. ``returned_bytes`` is what a ``wake_up`` sent now
            gives back.
    """

    name: str
    state: TrainerState
    held: TrainerBytes

    @property
    def away(self) -> TrainerState:
        """Where it is when it has given back all that it can: without an offload target its weights stay."""
        target = self.held.target
        if target is None:
            return TrainerState.SLEEPING
        return TrainerState.OFFLOADED_DISK if target == "disk" else TrainerState.OFFLOADED_CPU

    @property
    def lacks_bytes(self) -> int:
        """Device memory that it takes when it wakes now."""
        return max(0, self.held.awake_bytes - self.held.weights_bytes - self.held.scratch_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortLevels:
    """What is held now and what may be held at any moment, in bytes, by whomever.

    Attributes:
        host_held_bytes: host memory of backups, copies and kept gradients.
        device_held_bytes: device memory of the saver's active regions.
        host_budget_bytes: the most that may be held on the host, None without a limit.
        device_budget_bytes: the same on the device.
    """

    host_held_bytes: int = 0
    device_held_bytes: int = 0
    host_budget_bytes: int | None = None
    device_budget_bytes: int | None = None

    def without_budgets(self) -> CohortLevels:
        """The same where nothing is limited."""
        return replace(self, host_budget_bytes=None, device_budget_bytes=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One event of one member, with what it takes and gives. It takes before it gives."""

    member: str
    event: TrainerEvent
    source: TrainerState
    target: TrainerState
    takes_host: int = 0
    takes_device: int = 0
    gives_host: int = 0
    gives_device: int = 0

    @property
    def is_a_wake(self) -> bool:
        """Whether it takes device memory; the other moves give some back."""
        return self.event is TrainerEvent.WAKE_UP


def moves_to(member: Member, goal: TrainerState) -> tuple[Move, ...]:
    """The events that bring a member to a resting state, in order; none when it is there."""
    held, at = member.held, member.state
    found: list[Move] = []
    if at is goal:
        return ()
    if goal is TrainerState.AWAKE or at in OFFLOADED:  # from offloaded no event leads to sleeping but by way of awake
        found.append(
            Move(member=member.name, event=TrainerEvent.WAKE_UP, source=at, target=TrainerState.AWAKE,
                 takes_device=member.lacks_bytes, gives_host=held.returned_bytes)
        )  # fmt: skip
        at = TrainerState.AWAKE
    if goal is not TrainerState.AWAKE and at is TrainerState.AWAKE:
        found.append(
            Move(member=member.name, event=TrainerEvent.SLEEP, source=at, target=TrainerState.SLEEPING,
                 takes_host=held.kept_bytes, gives_host=held.replaced_bytes, gives_device=held.scratch_bytes)
        )  # fmt: skip
    if goal in OFFLOADED:
        found.append(
            Move(member=member.name, event=TrainerEvent.OFFLOAD, source=TrainerState.SLEEPING, target=goal,
                 takes_host=held.backup_bytes, gives_device=held.weights_bytes)
        )  # fmt: skip
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortStep:
    """One step of a turn, and the bytes that all members hold while it runs and after it.

    Attributes:
        member: whose event it is.
        event: ``sleep``, ``offload`` or ``wake_up``.
        source: the state that it leaves.
        target: the state that it reaches.
        host_peak_bytes: the most that is held on the host while it runs.
        device_peak_bytes: the most that is held on the device while it runs.
        host_bytes: held on the host after it.
        device_bytes: held on the device after it.
        excess: which budget it exceeds and by how much, in words; empty when it fits.
    """

    member: str
    event: TrainerEvent
    source: TrainerState
    target: TrainerState
    host_peak_bytes: int
    device_peak_bytes: int
    host_bytes: int
    device_bytes: int
    excess: str = ""

    def __str__(self) -> str:
        return f"{self.member}.{self.event}"

    def told(self) -> dict[str, object]:
        """As it stands in the log."""
        peaks = {"host_peak_bytes": self.host_peak_bytes, "device_peak_bytes": self.device_peak_bytes}
        return {"step": str(self), **peaks, "host_bytes": self.host_bytes, "device_bytes": self.device_bytes}


def step_of(move: Move, host_bytes: int, device_bytes: int, levels: CohortLevels) -> CohortStep:
    """The step that a move is when so much is held before it."""
    host_peak, device_peak = host_bytes + move.takes_host, device_bytes + move.takes_device
    return CohortStep(
        member=move.member,
        event=move.event,
        source=move.source,
        target=move.target,
        host_peak_bytes=host_peak,
        device_peak_bytes=device_peak,
        host_bytes=host_peak - move.gives_host,
        device_bytes=device_peak - move.gives_device,
        excess=_excess(move, host_peak, device_peak, levels),
    )


def _excess(move: Move, host_peak: int, device_peak: int, levels: CohortLevels) -> str:
    """What takes nothing of a memory exceeds no budget of it, however much others hold there already."""
    places = (
        ("device", move.takes_device, device_peak, levels.device_budget_bytes),
        ("host", move.takes_host, host_peak, levels.host_budget_bytes),
    )
    over = [
        f"{peak} bytes on the {place}, {takes} of them its own, and the budget is {budget}"
        for place, takes, peak, budget in places
        if takes and budget is not None and peak > budget
    ]
    return " and ".join(over)
