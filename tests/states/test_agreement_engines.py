"""Every rank has an engine of its own: what one of them lacks, all ranks send."""

from __future__ import annotations

from dataclasses import replace

from states.agreement_engines import joined_engines
from states.facts import EngineFacts

WHOLE = EngineFacts("E0")


def test_engines_that_are_alike_are_as_each_rank_has_them() -> None:
    """Nothing is said of ranks where all say the same."""
    fenced = EngineFacts("E0", None, ("frozen-base",), ("B",), "a push failed", 4, ("weights",), "away", ("x in 9",))

    assert joined_engines({(0, 1): (WHOLE, fenced), (2,): (WHOLE, fenced)}) == (WHOLE, fenced)


def test_what_one_engine_lacks_all_get() -> None:
    """In the order in which it is sent: the base first. What one has too much, all unload."""
    told = {
        (0, 2): (EngineFacts("E0", stale=("adapter/b",), extra=("c",)),),
        (1,): (EngineFacts("E0", stale=("frozen-base", "adapter/a"), extra=("b", "c")),),
    }
    (found,) = joined_engines(told) or ()

    assert found == EngineFacts("E0", stale=("frozen-base", "adapter/a", "adapter/b"), extra=("b", "c"))


def test_why_an_engine_may_not_serve_is_said_with_its_rank() -> None:
    """Of many ranks the first few."""
    one = replace(WHOLE, fenced="a push failed")
    (found,) = joined_engines({(0, 3): (WHOLE,), (1,): (one,)}) or ()
    (many,) = joined_engines({(rank,): (replace(one, fenced=f"{rank} s"),) for rank in range(5)}) or ()

    assert found.fenced == "rank 1: a push failed"
    assert many.fenced == "rank 0: 0 s; rank 1: 1 s; rank 2: 2 s; and 2 more"


def test_the_engine_with_the_least_decides_what_may_be_sent() -> None:
    """Memory that is released on one rank, slots that are too few, versions that are ahead, what nobody knows."""
    told = {
        (0,): (replace(WHOLE, adapter_slots=4, ahead=("frozen-base in version 9",)),),
        (1,): (replace(WHOLE, weights_resident=None, unknown="away", discarded=("weights",)),),
        (2,): (replace(WHOLE, weights_resident=False, adapter_slots=2),),
    }
    (found,) = joined_engines(told) or ()

    assert (found.weights_resident, found.adapter_slots) == (False, 2)
    assert (found.unknown, found.discarded) == ("rank 1: away", ("weights",))
    assert found.ahead == ("frozen-base in version 9",)
    del told[2,]
    (found,) = joined_engines(told) or ()
    assert (found.weights_resident, found.adapter_slots) == (None, 4)


def test_ranks_that_name_other_engines_are_not_joined() -> None:
    """The agreement on facts finds that, and says who."""
    assert joined_engines({(0,): (WHOLE,), (1,): (EngineFacts("E1"),)}) is None
    assert joined_engines({(0,): (WHOLE,), (1,): ()}) is None
