"""The books of versions: what an undo brings back."""

from __future__ import annotations

from lifecycle.weights.versions import VersionBook


def test_an_undo_leaves_no_id_in_the_history_that_was_never_committed() -> None:
    """Ranks that had come to giving ids out hold the same as ranks that had not: a new rank may join them."""
    book = VersionBook(newest=0)
    book.renew("adapter/A")
    book.renew("adapter/B")
    saved = book.save()
    book.renew("adapter/A")
    book.drop("adapter/B")
    book.renew("adapter/B")
    book.renew("adapter/C")

    book.load(saved)

    assert {group: [*ids] for group, ids in book.history.items()} == {"adapter/A": [1], "adapter/B": [2]}
    assert book.renew("adapter/A") == 6
    assert [*book.history["adapter/A"]] == [1, 6]
