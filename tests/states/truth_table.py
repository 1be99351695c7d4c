"""The truth table of the reference rule, 192 rows, written out by hand. Nothing here is computed.

In words: the saver's backup is the one copy only if the run is colocated, trains LoRA, offloads to cpu
and keeps no other model. Otherwise a second ("actor") copy is made if the run is colocated or keeps
another model; a run with neither makes none. Where a read goes follows from residency: live memory
while awake; offloaded, the copy that exists. Without a copy an offload to disk is refused. While another
model is active nothing is reconciled or sent.

Strategy lean asks of the bytes: offloaded to cpu, the saver's backup is read; offloaded to disk, the base lies
in its file and is read there; it makes no second copy of either.

Columns: (1) colocate (2) lora (3) ref (4) teacher (5) old actor (6) offload target (7) active model |
(8) weight sync reads the saver's backup (9) weight backup is enabled (10) the edge that ``reconciled``
takes | what a sync reads (11) offloaded to the target and (12) awake | strategy lean: (13) the edge that
``reconciled`` takes (14) what a sync reads offloaded to the target.
"""

from __future__ import annotations

from typing import Final

WRITTEN_BY_HAND: Final = """
(1) (2)  (3) (4)  (5)  (6)  (7)   | (8) (9) (10)               | (11)         (12)    | (13)               (14)
---------------------------------------------------------------------------------------------------------------------
yes yes  no  no   no   cpu  actor | yes no  reads-saver-backup | saver-backup live    | reads-saver-backup saver-backup
yes yes  no  no   no   cpu  other | yes no  refused            | refused      refused | refused            refused
yes yes  no  no   no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  no  no   no   disk other | no  yes refused            | refused      refused | refused            refused
yes yes  no  no   no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  no  no   no   none other | no  yes refused            | refused      refused | refused            refused
yes yes  no  no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  no  no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  no  no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  no  no   yes  disk other | no  yes refused            | refused      refused | refused            refused
yes yes  no  no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  no  no   yes  none other | no  yes refused            | refused      refused | refused            refused
yes yes  no  yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  no  yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  no  yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  no  yes  no   disk other | no  yes refused            | refused      refused | refused            refused
yes yes  no  yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  no  yes  no   none other | no  yes refused            | refused      refused | refused            refused
yes yes  no  yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  no  yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  no  yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  no  yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
yes yes  no  yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  no  yes  yes  none other | no  yes refused            | refused      refused | refused            refused
yes yes  yes no   no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  yes no   no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  yes no   no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  yes no   no   disk other | no  yes refused            | refused      refused | refused            refused
yes yes  yes no   no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  yes no   no   none other | no  yes refused            | refused      refused | refused            refused
yes yes  yes no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  yes no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  yes no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  yes no   yes  disk other | no  yes refused            | refused      refused | refused            refused
yes yes  yes no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  yes no   yes  none other | no  yes refused            | refused      refused | refused            refused
yes yes  yes yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  yes yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  yes yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  yes yes  no   disk other | no  yes refused            | refused      refused | refused            refused
yes yes  yes yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  yes yes  no   none other | no  yes refused            | refused      refused | refused            refused
yes yes  yes yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes yes  yes yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes yes  yes yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes yes  yes yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
yes yes  yes yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes yes  yes yes  yes  none other | no  yes refused            | refused      refused | refused            refused
yes no   no  no   no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   no  no   no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   no  no   no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   no  no   no   disk other | no  yes refused            | refused      refused | refused            refused
yes no   no  no   no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   no  no   no   none other | no  yes refused            | refused      refused | refused            refused
yes no   no  no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   no  no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   no  no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   no  no   yes  disk other | no  yes refused            | refused      refused | refused            refused
yes no   no  no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   no  no   yes  none other | no  yes refused            | refused      refused | refused            refused
yes no   no  yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   no  yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   no  yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   no  yes  no   disk other | no  yes refused            | refused      refused | refused            refused
yes no   no  yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   no  yes  no   none other | no  yes refused            | refused      refused | refused            refused
yes no   no  yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   no  yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   no  yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   no  yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
yes no   no  yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   no  yes  yes  none other | no  yes refused            | refused      refused | refused            refused
yes no   yes no   no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   yes no   no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   yes no   no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   yes no   no   disk other | no  yes refused            | refused      refused | refused            refused
yes no   yes no   no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   yes no   no   none other | no  yes refused            | refused      refused | refused            refused
yes no   yes no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   yes no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   yes no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   yes no   yes  disk other | no  yes refused            | refused      refused | refused            refused
yes no   yes no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   yes no   yes  none other | no  yes refused            | refused      refused | refused            refused
yes no   yes yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   yes yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   yes yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   yes yes  no   disk other | no  yes refused            | refused      refused | refused            refused
yes no   yes yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   yes yes  no   none other | no  yes refused            | refused      refused | refused            refused
yes no   yes yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
yes no   yes yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
yes no   yes yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
yes no   yes yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
yes no   yes yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
yes no   yes yes  yes  none other | no  yes refused            | refused      refused | refused            refused
no  yes  no  no   no   cpu  actor | no  no  makes-no-copy      | saver-backup live    | reads-saver-backup saver-backup
no  yes  no  no   no   cpu  other | no  no  refused            | refused      refused | refused            refused
no  yes  no  no   no   disk actor | no  no  makes-no-copy      | refused      live    | makes-no-copy      base-file
no  yes  no  no   no   disk other | no  no  refused            | refused      refused | refused            refused
no  yes  no  no   no   none actor | no  no  makes-no-copy      | never        live    | makes-no-copy      never
no  yes  no  no   no   none other | no  no  refused            | refused      refused | refused            refused
no  yes  no  no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  no  no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  no  no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  no  no   yes  disk other | no  yes refused            | refused      refused | refused            refused
no  yes  no  no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  no  no   yes  none other | no  yes refused            | refused      refused | refused            refused
no  yes  no  yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  no  yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  no  yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  no  yes  no   disk other | no  yes refused            | refused      refused | refused            refused
no  yes  no  yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  no  yes  no   none other | no  yes refused            | refused      refused | refused            refused
no  yes  no  yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  no  yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  no  yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  no  yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
no  yes  no  yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  no  yes  yes  none other | no  yes refused            | refused      refused | refused            refused
no  yes  yes no   no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  yes no   no   cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  yes no   no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  yes no   no   disk other | no  yes refused            | refused      refused | refused            refused
no  yes  yes no   no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  yes no   no   none other | no  yes refused            | refused      refused | refused            refused
no  yes  yes no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  yes no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  yes no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  yes no   yes  disk other | no  yes refused            | refused      refused | refused            refused
no  yes  yes no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  yes no   yes  none other | no  yes refused            | refused      refused | refused            refused
no  yes  yes yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  yes yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  yes yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  yes yes  no   disk other | no  yes refused            | refused      refused | refused            refused
no  yes  yes yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  yes yes  no   none other | no  yes refused            | refused      refused | refused            refused
no  yes  yes yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  yes  yes yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  yes  yes yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  yes  yes yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
no  yes  yes yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  yes  yes yes  yes  none other | no  yes refused            | refused      refused | refused            refused
no  no   no  no   no   cpu  actor | no  no  makes-no-copy      | saver-backup live    | reads-saver-backup saver-backup
no  no   no  no   no   cpu  other | no  no  refused            | refused      refused | refused            refused
no  no   no  no   no   disk actor | no  no  makes-no-copy      | refused      live    | makes-no-copy      base-file
no  no   no  no   no   disk other | no  no  refused            | refused      refused | refused            refused
no  no   no  no   no   none actor | no  no  makes-no-copy      | never        live    | makes-no-copy      never
no  no   no  no   no   none other | no  no  refused            | refused      refused | refused            refused
no  no   no  no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   no  no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   no  no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   no  no   yes  disk other | no  yes refused            | refused      refused | refused            refused
no  no   no  no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   no  no   yes  none other | no  yes refused            | refused      refused | refused            refused
no  no   no  yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   no  yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   no  yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   no  yes  no   disk other | no  yes refused            | refused      refused | refused            refused
no  no   no  yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   no  yes  no   none other | no  yes refused            | refused      refused | refused            refused
no  no   no  yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   no  yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   no  yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   no  yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
no  no   no  yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   no  yes  yes  none other | no  yes refused            | refused      refused | refused            refused
no  no   yes no   no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   yes no   no   cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   yes no   no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   yes no   no   disk other | no  yes refused            | refused      refused | refused            refused
no  no   yes no   no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   yes no   no   none other | no  yes refused            | refused      refused | refused            refused
no  no   yes no   yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   yes no   yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   yes no   yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   yes no   yes  disk other | no  yes refused            | refused      refused | refused            refused
no  no   yes no   yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   yes no   yes  none other | no  yes refused            | refused      refused | refused            refused
no  no   yes yes  no   cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   yes yes  no   cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   yes yes  no   disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   yes yes  no   disk other | no  yes refused            | refused      refused | refused            refused
no  no   yes yes  no   none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   yes yes  no   none other | no  yes refused            | refused      refused | refused            refused
no  no   yes yes  yes  cpu  actor | no  yes backs-up-actor     | actor-copy   live    | reads-saver-backup saver-backup
no  no   yes yes  yes  cpu  other | no  yes refused            | refused      refused | refused            refused
no  no   yes yes  yes  disk actor | no  yes backs-up-actor     | actor-copy   live    | makes-no-copy      base-file
no  no   yes yes  yes  disk other | no  yes refused            | refused      refused | refused            refused
no  no   yes yes  yes  none actor | no  yes backs-up-actor     | never        live    | makes-no-copy      never
no  no   yes yes  yes  none other | no  yes refused            | refused      refused | refused            refused
"""
