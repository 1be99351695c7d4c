"""The table of scenarios: what the real library and the host arena do alike, call by call. Data, no code.

A line is a call, and after ``=>`` the picture of all memory then, NAME=CONTENT/BACKUP for each allocation:

* CONTENT is the number of the content that was written last, ``?`` for values that are lost, ``-`` for no memory;
* BACKUP is the number of the content that the host backup holds, ``-`` when the library answers None,
  ``x`` where it is not asked, because asking ends the process;
* ``disk=1,2`` follows when there are backup files: the contents they hold, with ``~`` when the size is wrong.

``=> ends`` is the last line of a scenario: the real library ends the process, the arena raises and changes nothing.

    new NAME BYTES TAG KIND     an active allocation with content 1; KIND is none, cpu, disk, or pinned or mmap for a
                                cpu backup in that host memory, whatever the run is about
    write NAME N                content N on the device
    write-backup NAME N         content N in the host backup
    pause TAG, resume TAG       ``*`` is every tag
    free NAME
    retain on, retain off       host backups outlive a resume
    ask NAME OFFSET BYTES       the answer to a query for the backup of these bytes: ``none``, ``pointer``, or ends
    ask-unknown                 a query for an address that was never allocated
    spoil files                 the backup files disappear, or (``short``) lose their last byte
    fill disk, fill host        no file can grow, no host memory can be pinned
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row.

    Attributes:
        name: what it is about.
        lines: the calls and the pictures.
        device_bytes: the size of the device, None for no limit. A device of a size needs the stand-in.
        hosts: the kinds of host memory with which it says something.
    """

    name: str
    lines: str
    device_bytes: int | None = None
    hosts: tuple[str, ...] = ("pinned", "mmap")

    @property
    def fatal(self) -> bool:
        """Whether the real library ends the process."""
        return self.lines.rstrip().endswith("=> ends")


BYTES: Final = (
    Scenario(
        "a tag is paused and resumed",
        """
        new a 100 x cpu     => a=1/-
        new b 100 y cpu     => a=1/- b=1/-
        pause x             => a=-/1 b=1/-
        resume x            => a=1/- b=1/-
        write a 2           => a=2/- b=1/-
        pause x             => a=-/2 b=1/-
        resume x            => a=2/- b=1/-
        """,
    ),
    Scenario(
        "tags overlap in any order",
        """
        new a 100 x cpu     => a=1/-
        new b 5000 y cpu    => a=1/- b=1/-
        new c 1 x cpu       => a=1/- b=1/- c=1/-
        new d 4096 y none   => a=1/- b=1/- c=1/- d=1/-
        new e 12289 x disk  => a=1/- b=1/- c=1/- d=1/- e=1/-
        pause y             => a=1/- b=-/1 c=1/- d=-/x e=1/-
        pause x             => a=-/1 b=-/1 c=-/1 d=-/x e=-/- disk=1
        resume y            => a=-/1 b=1/- c=-/1 d=?/- e=-/- disk=1
        write d 2           => a=-/1 b=1/- c=-/1 d=2/- e=-/- disk=1
        resume x            => a=1/- b=1/- c=1/- d=2/- e=1/- disk=1
        """,
    ),
    Scenario(
        "an unknown tag is a silent success",
        """
        new a 100 x cpu     => a=1/-
        pause y             => a=1/-
        resume y            => a=1/-
        pause x             => a=-/1
        pause y             => a=-/1
        resume y            => a=-/1
        """,
    ),
    Scenario(
        "without backup values are lost and memory is not",
        """
        new a 100 x none    => a=1/-
        pause x             => a=-/x
        resume x            => a=?/-
        write a 2           => a=2/-
        """,
    ),
    Scenario(
        "what is written into the backup comes back on the device",
        """
        new a 5000 x cpu    => a=1/-
        new b 5000 x cpu    => a=1/- b=1/-
        pause x             => a=-/1 b=-/1
        write-backup b 2    => a=-/1 b=-/2
        resume x            => a=1/- b=2/-
        pause x             => a=-/1 b=-/2
        """,
    ),
    Scenario(
        "both kinds of host memory in one tag",
        """
        new a 100 x pinned  => a=1/-
        new b 100 x mmap    => a=1/- b=1/-
        pause x             => a=-/1 b=-/1
        write-backup a 2    => a=-/2 b=-/1
        write-backup b 3    => a=-/2 b=-/3
        resume x            => a=2/- b=3/-
        """,
        hosts=("pinned",),
    ),
    Scenario(
        "allocations are freed, active and paused",
        """
        new a 100 x cpu     => a=1/-
        new b 100 x none    => a=1/- b=1/-
        new c 100 x cpu     => a=1/- b=1/- c=1/-
        free a              => b=1/- c=1/-
        pause x             => b=-/x c=-/1
        free c              => b=-/x
        free b              =>
        pause x             =>
        resume x            =>
        new d 100 x cpu     => d=1/-
        pause x             => d=-/1
        resume x            => d=1/-
        """,
    ),
    Scenario(
        "a resume makes room for the next",
        """
        new a 4096 x cpu    => a=1/-
        pause x             => a=-/1
        new b 4096 y cpu    => a=-/1 b=1/-
        pause y             => a=-/1 b=-/1
        resume x            => a=1/- b=-/1
        pause x             => a=-/1 b=-/1
        resume y            => a=-/1 b=1/-
        """,
        device_bytes=4096,
    ),
)

RETAIN: Final = (
    Scenario(
        "a retained backup is right for what did not change",
        """
        retain on           =>
        new a 100 x cpu     => a=1/-
        new b 100 x cpu     => a=1/- b=1/-
        pause x             => a=-/1 b=-/1
        resume x            => a=1/1 b=1/1
        write b 2           => a=1/1 b=2/1
        pause x             => a=-/1 b=-/2
        resume x            => a=1/1 b=2/2
        free a              => b=2/2
        """,
    ),
    Scenario(
        "awake, a retained backup is not the device's memory",
        """
        retain on           =>
        new a 100 x cpu     => a=1/-
        pause x             => a=-/1
        resume x            => a=1/1
        write-backup a 2    => a=1/2
        pause x             => a=-/1
        write-backup a 3    => a=-/3
        resume x            => a=3/3
        """,
    ),
    Scenario(
        "what counts is what was wanted at the resume",
        """
        new a 100 x cpu     => a=1/-
        pause x             => a=-/1
        retain on           => a=-/1
        resume x            => a=1/1
        retain off          => a=1/1
        pause x             => a=-/1
        resume x            => a=1/-
        """,
    ),
    Scenario(
        "only host memory is retained",
        """
        retain on           =>
        new a 100 x none    => a=1/-
        new b 100 x disk    => a=1/- b=1/-
        pause x             => a=-/x b=-/- disk=1
        resume x            => a=?/- b=1/- disk=1
        """,
    ),
)

DISK: Final = (
    Scenario(
        "a disk backup is a file of raw bytes that no pointer leads to",
        """
        new a 5000 x disk   => a=1/-
        pause x             => a=-/- disk=1
        ask a 0 5000        => none
        ask a 10 1          => none
        resume x            => a=1/- disk=1
        ask a 0 5000        => none
        """,
    ),
    Scenario(
        "the file stays after resume and is written again",
        """
        new a 100 x disk    => a=1/-
        new b 100 x disk    => a=1/- b=1/-
        pause x             => a=-/- b=-/- disk=1,1
        resume x            => a=1/- b=1/- disk=1,1
        write a 2           => a=2/- b=1/- disk=1,1
        pause x             => a=-/- b=-/- disk=1,2
        resume x            => a=2/- b=1/- disk=1,2
        """,
    ),
    Scenario(
        "freeing removes the file, paused or active",
        """
        new a 100 x disk    => a=1/-
        new b 100 y disk    => a=1/- b=1/-
        pause x             => a=-/- b=1/- disk=1
        free a              => b=1/-
        pause y             => b=-/- disk=1
        resume y            => b=1/- disk=1
        free b              =>
        """,
    ),
    Scenario("a full disk", "new a 5000 x disk => a=1/-\nfill disk => a=1/-\npause x => ends"),
    Scenario(
        "a full disk under the second of a tag",
        """
        new a 100 x disk    => a=1/-
        new b 5000 x disk   => a=1/- b=1/-
        fill disk           => a=1/- b=1/-
        pause x             => ends
        """,
    ),
    Scenario(
        "a file that is gone at resume",
        "new a 100 x disk => a=1/-\npause x => a=-/- disk=1\nspoil files => a=-/-\nresume x => ends",
    ),
    Scenario(
        "a file that is short at resume",
        "new a 100 x disk => a=1/-\npause x => a=-/- disk=1\nspoil short => a=-/- disk=1~\nresume x => ends",
    ),
    Scenario(
        "a file that is gone at the next pause",
        """
        new a 100 x disk    => a=1/-
        pause x             => a=-/- disk=1
        resume x            => a=1/- disk=1
        spoil files         => a=1/-
        pause x             => ends
        """,
    ),
)

POINTERS: Final = (
    Scenario(
        "pointers into an allocation",
        """
        new a 100 x cpu     => a=1/-
        ask a 0 100         => none
        pause x             => a=-/1
        ask a 0 100         => pointer
        ask a 0 1           => pointer
        ask a 99 1          => pointer
        ask a 37 50         => pointer
        resume x            => a=1/-
        ask a 37 50         => none
        """,
    ),
    Scenario(
        "queries for no bytes",
        """
        new a 100 x cpu     => a=1/-
        ask a 0 0           => none
        ask a 100 0         => none
        pause x             => a=-/1
        ask a 0 0           => pointer
        ask a 50 0          => pointer
        ask a 100 0         => pointer
        """,
    ),
    Scenario(
        "without backup an active allocation answers",
        "new a 100 x none => a=1/-\nask a 0 100 => none\nask a 50 0 => none",
    ),
    Scenario("a query for no bytes behind the end", "new a 100 x cpu => a=1/-\nask a 101 0 => ends"),
    Scenario("a pointer behind the end", "new a 100 x cpu => a=1/-\nask a 100 1 => ends"),
    Scenario("a query over the end, in the same page", "new a 100 x cpu => a=1/-\nask a 0 101 => ends"),
    Scenario(
        "a query over two allocations",
        """
        new a 4096 x cpu    => a=1/-
        new b 4096 x cpu    => a=1/- b=1/-
        pause x             => a=-/1 b=-/1
        ask a 0 4097        => ends
        """,
    ),
    Scenario("an address that was never allocated", "new a 100 x cpu => a=1/-\nask-unknown => ends"),
    Scenario(
        "a paused allocation without backup",
        "new a 100 x none => a=1/-\npause x => a=-/x\nask a 0 100 => ends",
    ),
    Scenario(
        "no bytes of a paused allocation without backup",
        "new a 100 x none => a=1/-\npause x => a=-/x\nask a 0 0 => ends",
    ),
)

MISUSE: Final = (
    Scenario("a double pause", "new a 100 x cpu => a=1/-\npause x => a=-/1\npause x => ends"),
    Scenario("a double pause without backup", "new a 100 x none => a=1/-\npause x => a=-/x\npause x => ends"),
    Scenario("a resume of an active tag", "new a 100 x cpu => a=1/-\nresume x => ends"),
    Scenario(
        "a double resume",
        "new a 100 x cpu => a=1/-\npause x => a=-/1\nresume x => a=1/-\nresume x => ends",
    ),
    Scenario(
        "a pause of every tag, with one paused",
        """
        new a 100 x cpu     => a=1/-
        new b 100 y cpu     => a=1/- b=1/-
        pause y             => a=1/- b=-/1
        pause *             => ends
        """,
    ),
    Scenario(
        "a resume of every tag, with one active",
        """
        new a 100 x cpu     => a=1/-
        new b 100 y cpu     => a=1/- b=1/-
        pause y             => a=1/- b=-/1
        resume *            => ends
        """,
    ),
    Scenario(
        "a resume of a tag with new memory in it",
        """
        new a 100 x cpu     => a=1/-
        pause x             => a=-/1
        new b 100 x cpu     => a=-/1 b=1/-
        resume x            => ends
        """,
    ),
    Scenario(
        "a pause of a tag with new memory in it",
        """
        new a 100 x cpu     => a=1/-
        pause x             => a=-/1
        new b 100 x cpu     => a=-/1 b=1/-
        pause x             => ends
        """,
    ),
    Scenario(
        "a full device at resume",
        """
        new a 4096 x cpu    => a=1/-
        pause x             => a=-/1
        new b 4096 y none   => a=-/1 b=1/-
        resume x            => ends
        """,
        device_bytes=4096,
    ),
    Scenario(
        "a device that is full half-way through a resume",
        """
        new a 4096 x cpu    => a=1/-
        new b 4096 x cpu    => a=1/- b=1/-
        pause x             => a=-/1 b=-/1
        new c 4096 y none   => a=-/1 b=-/1 c=1/-
        resume x            => ends
        """,
        device_bytes=8192,
    ),
    Scenario(
        "full host memory at pause", "new a 100 x cpu => a=1/-\nfill host => a=1/-\npause x => ends", None, ("pinned",)
    ),
)

SCENARIOS: Final = {scenario.name: scenario for scenario in (*BYTES, *RETAIN, *DISK, *POINTERS, *MISUSE)}
