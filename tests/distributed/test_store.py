"""The store outside the ranks: what it listens on, what names it, and what comes of it when it is gone.

And what no agreement over it can be made of.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lifecycle.distributed import RankAgreement, StoreLost
from lifecycle.distributed.hosting import LOOPBACK, StoreServer, parse_address
from lifecycle.errors import ConfigError
from states import Facts, Step, TrainerEvent, TrainerState, decide

SLEEP, AWAKE = TrainerEvent.SLEEP, TrainerState.AWAKE
TIMEOUT_S = 3.0


@pytest.mark.parametrize("host", ["", "a..b", "x" * 300, "192.0.2.1"])
def test_a_host_that_is_none_of_this_machine_is_refused(host: str) -> None:
    """Also a name that no host can have."""
    with pytest.raises(ConfigError, match="the store cannot listen on"):
        StoreServer(host)


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    """It is not taken for another one."""
    with pytest.raises(ConfigError, match=f"cannot listen on port {port}; use 1 to 65535, or 0 for one that is free"):
        StoreServer(LOOPBACK, port)


def test_a_port_that_is_taken_is_refused() -> None:
    """With what to do."""
    with StoreServer() as first, pytest.raises(ConfigError, match="use another address"):
        StoreServer(*parse_address(first.address))


def test_the_command_says_what_is_wrong_and_ends() -> None:
    """With code 2, and no traceback."""
    command = [sys.executable, "-m", "lifecycle.distributed.store", "--port", "70000"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("the store cannot listen on port 70000")


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:0", "host:65536", "host:-1", "host:८", None])
def test_what_names_no_store_is_refused(address: Any) -> None:
    """Before anybody is asked."""
    with pytest.raises(ConfigError, match="is no address of a store; use HOST:PORT"):
        RankAgreement.over_gloo(0, 2, address)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"rank": 2}, "rank is 2; use 0 to 1"),
        ({"rank": -1}, "rank is -1; use 0 to 1"),
        ({"rank": True}, "rank is True; use 0 to 1"),
        ({"world": 1}, "world is 1; an agreement needs 2 to 65536 ranks"),
        ({"world": 65537}, "world is 65537; an agreement needs"),
        ({"world": "2"}, "world is '2'; an agreement needs"),
        ({"timeout_s": 0}, "timeout_s is 0; use a number of seconds up to a day"),
        ({"timeout_s": float("nan")}, "timeout_s is nan; use"),
        ({"timeout_s": 86_401}, "timeout_s is 86401; use"),
        ({"timeout_s": True}, "timeout_s is True; use"),
        ({"run": ""}, "run is ''; use letters, digits, dot, underscore and dash"),
        ({"run": "a/b"}, "run is 'a/b'; use"),
        ({"run": 7}, "run is 7; use"),
    ],
)
def test_what_no_agreement_can_be_made_of_is_refused(given: dict[str, Any], match: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(ConfigError, match=match):
        RankAgreement.over_gloo(**{"rank": 0, "world": 2, "store": "127.0.0.1:1", **given})


@pytest.fixture
def store() -> Iterator[subprocess.Popen[str]]:
    """A process of its own."""
    command = [sys.executable, "-m", "lifecycle.distributed.store", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_ranks_go_on_without_the_store_until_they_need_it(store: subprocess.Popen[str]) -> None:
    """As long as their group stands. When a rank has left, the others are told that the store is gone, at once."""
    assert store.stdout is not None
    address = store.stdout.readline().strip()
    ranks = [RankAgreement.over_gloo(rank, 2, address, timeout_s=TIMEOUT_S) for rank in range(2)]
    assert _both(lambda rank: ranks[rank].newest(rank)) == [1, 1]
    assert _both(lambda rank: ranks[rank].acted()) == [None, None]
    store.kill()
    store.wait()
    assert _both(lambda rank: isinstance(_decided(ranks[rank]), Step)) == [True, True]
    assert _both(lambda rank: ranks[rank].acted()) == [None, None]
    ranks[1].close()

    with pytest.raises(StoreLost, match=rf"{address} does not answer: .* start it again"):
        _decided(ranks[0])


def _decided(ranks: RankAgreement) -> object:
    ranks.begins()
    return ranks.decided(SLEEP, AWAKE, Facts(), decide(AWAKE, SLEEP, Facts()))


def _both(do: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(do, range(2)))
