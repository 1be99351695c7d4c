"""One registry of adapters for all ranks and for whoever else may ask: a named actor, and what talks to it.

The actor outlives any rank. What it holds is the truth; a rank works on a copy of one moment (see
:mod:`lifecycle.ray.rank_registry`) and reports back what its transitions did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import RegistrySnapshot
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.errors import ConfigError
from lifecycle.ray.answers import Answer, told_by_ray
from lifecycle.ray.calls import Handle, need_ray
from lifecycle.ray.errors import RegistryLost
from lifecycle.ray.pulled import Pulled
from lifecycle.ray.registry_actor import RegistryActor
from lifecycle.wording import first_line

P = ParamSpec("P")
T = TypeVar("T")
_ANSWER_S: Final = 60.0
_END_S: Final = 10.0


def _asked(method: Callable[Concatenate[AdapterRegistry, P], T]) -> Callable[Concatenate[RegistryProxy, P], T]:
    """The registry's own method, called in its actor."""
    name = method.__name__

    @wraps(method)
    def ask(self: RegistryProxy, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self.ask(name, *args, **kwargs)
        return found

    return ask


class RegistryProxy:
    """A registry that lives in an actor, for drivers and other actors. Its methods are those of the registry.

    What is registered is checked against the slots of a model when it is loaded, and not before: the registry has no
    model. Tensors that are registered travel to the actor, so they may be changed afterwards. Can be given to other
    tasks and actors.

    Args:
        name: under which it was started.
        actor: its handle.
        answer_s: how long an answer may take, in seconds.

    Raises:
        RegistryLost: (every method) the actor ended or does not answer. Else what the registry's own method raises.
    """

    def __init__(self, name: str, actor: Handle, *, answer_s: float = _ANSWER_S) -> None:
        self.name = name
        self._actor = actor
        self._answer_s = answer_s

    def __repr__(self) -> str:
        return f"RegistryProxy({self.name!r})"

    register = _asked(AdapterRegistry.register)
    deregister = _asked(AdapterRegistry.deregister)
    resupply = _asked(AdapterRegistry.resupply)
    find = _asked(AdapterRegistry.find)
    adapter_state = _asked(AdapterRegistry.adapter_state)
    is_active = _asked(AdapterRegistry.is_active)
    active_adapters = _asked(AdapterRegistry.active_adapters)
    in_state = _asked(AdapterRegistry.in_state)
    desired = _asked(AdapterRegistry.desired)
    snapshot = _asked(AdapterRegistry.snapshot)
    slot_version = _asked(AdapterRegistry.slot_version)
    step_count = _asked(AdapterRegistry.step_count)
    set_step = _asked(AdapterRegistry.set_step)
    resolve_num_step = _asked(AdapterRegistry.resolve_num_step)
    record_batch_adapters = _asked(AdapterRegistry.record_batch_adapters)
    mark_batch_trained = _asked(AdapterRegistry.mark_batch_trained)
    retire_adapters = _asked(AdapterRegistry.retire_adapters)
    free_slot = _asked(AdapterRegistry.free_slot)
    declare_complete = _asked(AdapterRegistry.declare_complete)
    unaccounted = _asked(AdapterRegistry.unaccounted)
    save = _asked(AdapterRegistry.save)

    @property
    def slots(self) -> int:
        """How many slots there are."""
        count: int = self._answer(self._actor.slots.remote)
        return count

    def ask(self, method: str, *args: object, **kwargs: object) -> Any:
        """Call a method of the registry in its actor."""
        return self._answer(lambda: self._actor.ask.remote(method, args, kwargs))

    def open(self, slots: int | None, path: str | Path | None, saved: RegistrySnapshot | None) -> None:
        """Let the actor begin with nothing or with what was saved, or end it."""
        try:
            self._answer(lambda: self._actor.open.remote(slots, path, saved))
        except BaseException:
            self.close()
            raise

    def connect(self, held: Mapping[str, DesiredAdapter]) -> None:
        """A trainer begins with these adapters in its slots. For the rank that asks for all."""
        self._answer(lambda: self._actor.connect.remote(dict(held)))

    def pull(self, known: int | None, sources: Mapping[int, int], held: Mapping[str, DesiredAdapter] | None) -> Pulled:
        """Everything that is not known. For the rank that asks for all.

        Args:
            known: the revision that is known; None for none.
            sources: the numbers of the sources that are known.
            held: what the trainers hold, while no event is under way: what has left and is not held is completed first.
                None: nobody knows.
        """
        found: Pulled = self._answer(lambda: self._actor.pull.remote(known, dict(sources), held))
        return found

    def post(self, method: str, *args: object) -> Any:
        """Tell it something without waiting. Returns what to give to :meth:`posted`; order is kept."""
        return self._actor.ask.remote(method, args, {})

    def posted(self, ref: Any) -> None:
        """Wait until it has heard that."""
        self._answer(lambda: ref)

    def close(self) -> None:
        """End the actor, and wait until it has ended. What it holds is gone, unless it was saved. Idempotent."""
        ray.kill(self._actor, no_restart=True)
        ray.wait([self._actor.slots.remote()], timeout=_END_S)  # answered when it is dead

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, call: Callable[[], Any]) -> Any:
        try:
            answer: Answer[Any] = ray.get(call(), timeout=self._answer_s)
        except RayActorError as error:
            raise RegistryLost(self.name, f"its actor has ended: {first_line(error)}") from None
        except GetTimeoutError:
            raise RegistryLost(self.name, f"its actor did not answer within {self._answer_s:g} s") from None
        except RayError as error:
            raise told_by_ray(error) from None
        if answer.error is not None:
            raise answer.error
        return answer.value


def start_registry(
    name: str,
    slots: int | None = None,
    *,
    path: str | Path | None = None,
    saved: RegistrySnapshot | None = None,
    detached: bool = False,
    options: Mapping[str, object] | None = None,
) -> RegistryProxy:
    """Start a registry as a named actor.

    Args:
        name: under which :func:`registry` finds it, in the namespace of this process.
        slots: how many adapters there can be at a time; that of what was saved when None.
        path: what a registry has saved (``save``), to go on from there; a file on the node of the actor.
        saved: or the snapshot of one.
        detached: it outlives the program that starts it; ``close()`` ends it.
        options: more options of the actor, such as ``resources``.

    Raises:
        ConfigError: Ray is not initialised, the name is taken, or the registry cannot be built.
        RegistryFileError: the file cannot be read.
    """
    need_ray()
    if not isinstance(name, str) or not name:
        raise ConfigError(f"name is {name!r}; a registry has a name")
    wanted = {"num_cpus": 0, **(options or {}), "name": name, "max_restarts": 0, "max_concurrency": 1}
    if detached:
        wanted["lifetime"] = "detached"
    try:
        found = RegistryProxy(name, ray.remote(RegistryActor).options(**wanted).remote())
    except ValueError as error:  # Ray's word for a name that is taken
        raise ConfigError(f"registry {name!r} cannot be started: {first_line(error)}") from error
    found.open(slots, path, saved)
    return found


def registry(name: str, *, namespace: str | None = None) -> RegistryProxy:
    """The registry that was started under this name, from any process of the cluster.

    Raises:
        ConfigError: Ray is not initialised.
        RegistryLost: there is none.
    """
    need_ray()
    try:
        return RegistryProxy(name, ray.get_actor(name, namespace=namespace))
    except ValueError:
        raise RegistryLost(name, "no actor of this name is there") from None
