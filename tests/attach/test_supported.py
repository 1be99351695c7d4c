"""Each supported row of the table: attached, trained, offloaded and woken, a model is what it would have been."""

from __future__ import annotations

import pytest

from lifecycle import TrainerState
from lifecycle.memory.attachable import SUPPORTED
from tests.attach.supported import CASES
from tests.attach.world import attach, bits_of, contents, looks, ties


def test_every_supported_row_has_a_case_and_every_case_a_row() -> None:
    """A row that nobody tries is no promise."""
    assert list(CASES) == [row.kind for row in SUPPORTED]


@pytest.mark.parametrize("kind", [row.kind for row in SUPPORTED])
def test_what_is_supported_trains_and_comes_back_bit_identical(kind: str) -> None:
    """Against a twin that was never attached: outputs, bytes, strides, tying, and addresses from attach on."""
    case, twin = CASES[kind](), CASES[kind]()
    optimizer, other = case.optimizer(), twin.optimizer()
    before = (looks(case.model), ties(case.model), case.output())

    trainer = attach(case, optimizer)
    assert (looks(case.model), ties(case.model), case.output()) == before
    for _ in range(2):
        if optimizer is not None:
            with trainer.step() as step:
                case.train(optimizer)
                step.stepped()
            twin.train(other)
        held, output = contents(case.model), case.output()
        trainer.sleep(offload=True)
        assert trainer.state is TrainerState.OFFLOADED_CPU
        with trainer.weights("test") as lease:
            read = {name: bits_of(lease[name]) for name in lease}
        trainer.wake_up()

        assert contents(case.model) == held
        assert case.output() == output == twin.output()
        assert set(read.values()) == {one for one, _ in held.values()}
        assert (looks(case.model), ties(case.model)) == before[:2]
