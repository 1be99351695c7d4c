"""A small GPTModel on the CPU, in a tensor-parallel world of this process or of spawned ones.

The model has the sizes of the Llama of :mod:`tests.models`: 2 layers, 4 heads in 2 query groups, a gated MLP.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

from lifecycle.adapters import MegatronAdapters
from lifecycle.adapters.fit import peft_key

HIDDEN, INNER, HEADS, GROUPS, VOCABULARY, LAYERS = 32, 48, 4, 2, 64, 2
SLOT_RANK = 8
IDS = torch.tensor([[1, 5, 9, 2, 7], [3, 3, 60, 11, 0]])
ANSWER_S = 100

_KEYS = HIDDEN // HEADS * GROUPS
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, _KEYS),
    "self_attn.v_proj": (HIDDEN, _KEYS),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (HIDDEN, INNER),
    "mlp.up_proj": (HIDDEN, INNER),
    "mlp.down_proj": (INNER, HIDDEN),
}
"""Projection to (in, out) features."""

Result = dict[str, Any]


@contextmanager
def parallel(store: dist.Store, rank: int = 0, size: int = 1) -> Iterator[None]:
    """A gloo world over loopback with megatron's groups on it, all ranks tensor-parallel, without a GPU."""
    with warnings.catch_warnings(), mock.patch.dict("os.environ", GLOO_SOCKET_IFNAME="lo"):
        warnings.simplefilter("ignore")
        from megatron.core import parallel_state  # noqa: PLC0415 - warns of what a CPU has not
        from megatron.core.tensor_parallel import random  # noqa: PLC0415

        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
        try:
            parallel_state.initialize_model_parallel(size)
            random.initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
            with mock.patch("torch.cuda.current_device", return_value=torch.device("cpu")):
                yield
        finally:
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()


def gpt(*, dtype: torch.dtype = torch.float32, positions: str = "learned_absolute", **changes: Any) -> Any:
    """A GPTModel of seed 0. The whole weights are the same at every tensor-parallel size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from megatron.core.models.gpt import GPTModel  # noqa: PLC0415 - see parallel()
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: PLC0415
        from megatron.core.transformer import TransformerConfig  # noqa: PLC0415

        torch.manual_seed(0)
        return GPTModel(
            TransformerConfig(**(_settings(dtype) | changes)),
            get_gpt_layer_local_spec(normalization="RMSNorm", num_experts=changes.get("num_moe_experts")),
            vocab_size=VOCABULARY,
            max_sequence_length=16,
            position_embedding_type=positions,
            share_embeddings_and_output_weights=False,
        )


def _settings(dtype: torch.dtype) -> dict[str, Any]:
    return {
        "num_layers": LAYERS,
        "hidden_size": HIDDEN,
        "ffn_hidden_size": INNER,
        "num_attention_heads": HEADS,
        "num_query_groups": GROUPS,
        "tensor_model_parallel_size": dist.get_world_size(),
        "use_cpu_initialization": True,
        "params_dtype": dtype,
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "normalization": "RMSNorm",
        "layernorm_epsilon": 1e-6,
        "add_bias_linear": False,
        "bias_activation_fusion": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "attention_softmax_in_fp32": False,
        "apply_rope_fusion": False,
        "init_method_std": 0.3,
    }


def forward(model: Any, *, labels: bool = False) -> Tensor:
    """This rank's logits ``[batch, tokens, vocabulary / ranks]`` of the ids, or the mean loss of the next token."""
    length = IDS.shape[1]
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    places = torch.arange(length).expand(IDS.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron warns of its own defaults
        found: Tensor = model(IDS, places, mask, labels=IDS.roll(-1, 1) if labels else None)
    return found.mean() if labels else found


def factors(
    seed: int, rank: int, targets: tuple[str, ...] = tuple(SHAPES), dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Random whole factors under PEFT names, neither of them zero, another A for each projection."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for layer in range(LAYERS):
        for path, (size_in, size_out) in SHAPES.items():
            if path.endswith(targets):
                module = f"model.layers.{layer}.{path}"
                found[peft_key(module, "A")] = torch.randn(rank, size_in, generator=generator).to(dtype) * 0.2
                found[peft_key(module, "B")] = torch.randn(size_out, rank, generator=generator).to(dtype) * 0.2
    return found


def load(into: MegatronAdapters, name: str) -> None:
    """What the controller does with a registered adapter: prepare, write bytes, install."""
    prepared = into.prepare(into.desired()[name])
    with torch.no_grad():
        for key, one in into.slot_tensors(prepared.desired.slot).items():
            one.copy_(prepared.tensors[key])
    into.install(prepared)


def export(made: MegatronAdapters, name: str) -> Mapping[str, Tensor]:
    """The tensors of an adapter under PEFT names, whole."""
    slot = made.slot_tensors(made.slot_of(name))
    return {key: one.detach() for key, one in made.export(name, slot.__getitem__)[3].items()}


def in_ranks(task: Callable[[int], Result], size: int, folder: Path) -> list[Result]:
    """What *task* returns on each rank of a tensor-parallel world of spawned processes, which end with this call.

    Args:
        task: of a module, called with the rank. Returns plain values and tensors.
        size: how many ranks.
        folder: for the store they meet at.
    """
    context = torch.multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    meeting = str(folder / "store")
    ranks = [
        context.Process(target=_rank, args=(task, rank, size, meeting, pipe[1]), daemon=True)
        for rank, pipe in enumerate(pipes)
    ]
    try:
        for one in ranks:
            one.start()
        for _, sender in pipes:
            sender.close()
        return [_answer(rank, receiver) for rank, (receiver, _) in enumerate(pipes)]
    finally:
        for one in ranks:
            if one.pid is not None:
                one.kill()
                one.join()
        for receiver, _ in pipes:
            receiver.close()


def _rank(task: Callable[[int], Result], rank: int, size: int, meeting: str, sender: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        with parallel(dist.FileStore(meeting, size), rank, size):
            found = task(rank)
            plain = {key: one.detach().numpy() if isinstance(one, Tensor) else one for key, one in found.items()}
            dist.barrier()  # nobody leaves while another one still needs it
        sender.send(plain)
    except BaseException as error:  # told to the test, which fails with it
        sender.send({"error": f"{type(error).__name__}: {error}"})
        raise


def _answer(rank: int, receiver: Any) -> Result:
    if not receiver.poll(ANSWER_S):
        raise AssertionError(f"rank {rank} did not answer in {ANSWER_S} s")
    found: Result = receiver.recv()
    if "error" in found:
        raise AssertionError(f"rank {rank}: {found['error']}")
    return {key: torch.from_numpy(one) if hasattr(one, "dtype") else one for key, one in found.items()}
