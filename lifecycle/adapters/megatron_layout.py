"""Which layers of a megatron-core ``GPTModel`` get slots, and what they are called in a Hugging Face model.

Megatron fuses: ``linear_qkv`` is q_proj, k_proj and v_proj, for each query group the rows of its query
heads, then of its key, then of its value; ``linear_fc1`` of a gated MLP is gate_proj above up_proj. Every
projection keeps factors of its own here, so that an adapter in which they have different A's is
represented exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lifecycle.adapters.fit import SlotLayout, is_target
from lifecycle.errors import ConfigError

LORA_SLOTS: Final = "lora_slots"
"""The name of the module under which a model holds its slots."""

_VOCABULARY: Final = frozenset({"embed_tokens", "lm_head", "word_embeddings", "output_layer"})


@dataclass(frozen=True, slots=True)
class Part:
    """One projection of a parallel layer.

    Attributes:
        path: of the module in a Hugging Face model.
        features_in: whole, over all ranks.
        features_out: whole, over all ranks.
        wanted: whether it gets slots.
    """

    path: str
    features_in: int
    features_out: int
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class ParallelLayer:
    """A parallel linear layer with the projections that it consists of.

    Attributes:
        name: of the module in the GPTModel.
        module: a ``ColumnParallelLinear`` or a ``RowParallelLinear``.
        is_column: whether its output is sharded, else its input is.
        parts: in the order of its output.
        groups: how often the parts follow each other in this rank's output.
    """

    name: str
    module: Any
    is_column: bool
    parts: tuple[Part, ...]
    groups: int = 1


def find_layers(model: Any, rank: int, target_modules: Sequence[str]) -> tuple[SlotLayout, tuple[ParallelLayer, ...]]:
    """Which layers get slots. Changes nothing.

    Args:
        model: the ``GPTModel``, not a wrapper around it.
        rank: of the slots.
        target_modules: names of the projections as Hugging Face has them, or ends of their paths.

    Raises:
        ConfigError: megatron-core is missing, the model is of a kind on which slots would compute
            something wrong, or a target is none of its projections.
    """
    _check_wanted(rank, target_modules)
    _check_model(model)
    modules: dict[str, str] = {}
    layers = []
    for layer in (one for block in model.decoder.layers for one in _layers_of(model, block)):
        parts = []
        for part in layer.parts:
            target = next((one for one in target_modules if is_target(part.path, one)), None)
            modules |= {} if target is None else {part.path: target}
            parts.append(Part(part.path, part.features_in, part.features_out, target is not None))
        if any(part.wanted for part in parts):
            _check_layer(layer, model)
            layers.append(ParallelLayer(layer.name, layer.module, layer.is_column, tuple(parts), layer.groups))
    missing = sorted(set(target_modules) - set(modules.values()))
    if missing:
        raise ConfigError(f"the model has no projection named {', '.join(missing)}; it has {_known(model)}")
    shapes = {one.path: (one.features_in, one.features_out) for layer in layers for one in layer.parts if one.wanted}
    return SlotLayout(rank, modules, shapes), tuple(layers)


def _check_wanted(rank: int, target_modules: Sequence[str]) -> None:
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ConfigError(f"rank is {rank!r}; slots have a rank of at least 1")
    if isinstance(target_modules, str) or not target_modules:
        raise ConfigError(f"target_modules is {target_modules!r}; give a sequence of projection names")
    vocabulary = sorted(_VOCABULARY & {one.rpartition(".")[2] for one in target_modules})
    if vocabulary:
        raise ConfigError(
            f"{', '.join(vocabulary)} is split by vocabulary and often tied; slots can be put on q_proj, k_proj, "
            "v_proj, o_proj, gate_proj, up_proj and down_proj"
        )


def _check_model(model: Any) -> None:
    try:
        from megatron.core.models.gpt import GPTModel  # noqa: PLC0415 - an extra, needed only where slots are built
    except ImportError as error:
        raise ConfigError("slots on a GPTModel need megatron-core; install adapter-lifecycle[megatron]") from error
    if not isinstance(model, GPTModel):
        raise ConfigError(f"the model is {type(model).__name__}; give megatron-core's GPTModel itself, not a wrapper")
    if hasattr(model, LORA_SLOTS):
        raise ConfigError("the model has slots already; build one host on a model")
    config = model.config
    if config.sequence_parallel:
        raise ConfigError("sequence_parallel is on: a layer sees a part of the sequence only; turn it off")
    if config.pipeline_model_parallel_size > 1 or not (model.pre_process and model.post_process):
        raise ConfigError(
            "the model is one stage of a pipeline and lacks the layers of the others, so that an adapter could be "
            "neither read nor exported whole; use pipeline_model_parallel_size=1"
        )
    if config.multi_latent_attention:
        raise ConfigError("multi-latent attention has no linear_qkv; slots need plain or grouped-query attention")
    if config.attention_output_gate:
        raise ConfigError("attention_output_gate puts a gate into linear_qkv, which Hugging Face's layout has not")


def _layers_of(model: Any, block: Any) -> Iterator[ParallelLayer]:
    """The four linear layers of a transformer layer, as far as it has them."""
    # Numbers of layers start at 1 there.
    config, number = model.config, block.layer_number - 1
    path, name = f"model.layers.{number}", f"decoder.layers.{number}"
    hidden, queries = config.hidden_size, config.kv_channels * config.num_attention_heads
    keys, inner = config.kv_channels * config.num_query_groups, config.ffn_hidden_size
    attention, mlp = block.self_attention, block.mlp
    qkv = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))
    up = (("gate_proj", inner), ("up_proj", inner)) if config.gated_linear_unit else (("up_proj", inner),)
    yield ParallelLayer(
        f"{name}.self_attention.linear_qkv",
        attention.linear_qkv,
        is_column=True,
        parts=tuple(Part(f"{path}.self_attn.{one}", hidden, rows) for one, rows in qkv),
        groups=max(1, config.num_query_groups // model.tp_group.size()),
    )
    output = Part(f"{path}.self_attn.o_proj", queries, hidden)
    yield ParallelLayer(f"{name}.self_attention.linear_proj", attention.linear_proj, is_column=False, parts=(output,))
    yield ParallelLayer(
        f"{name}.mlp.linear_fc1",
        getattr(mlp, "linear_fc1", mlp),
        is_column=True,
        parts=tuple(Part(f"{path}.mlp.{one}", hidden, rows) for one, rows in up),
    )
    output = Part(f"{path}.mlp.down_proj", inner, hidden)
    yield ParallelLayer(f"{name}.mlp.linear_fc2", getattr(mlp, "linear_fc2", mlp), is_column=False, parts=(output,))


def _check_layer(layer: ParallelLayer, model: Any) -> None:
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear  # noqa: PLC0415 - see above

    module, kind = layer.module, ColumnParallelLinear if layer.is_column else RowParallelLinear
    if getattr(module, "is_expert", False) or "MoE" in type(module).__name__:
        raise ConfigError(f"{layer.name} belongs to experts; slots can be put on the attention of this layer only")
    if not isinstance(module, kind):
        raise ConfigError(
            f"{layer.name} is {type(module).__name__}; slots need megatron-core's own {kind.__name__} "
            "(get_gpt_layer_local_spec), layers of Transformer Engine compute in their own way"
        )
    if layer.is_column and module.gather_output:
        raise ConfigError(f"{layer.name} gathers its output; slots need gather_output=False")
    if not layer.is_column and not module.input_is_parallel:
        raise ConfigError(f"{layer.name} splits its input itself; slots need input_is_parallel=True")
    size, config = model.tp_group.size(), model.config
    if len(layer.parts) > 2 and config.num_query_groups % size:  # noqa: PLR2004 - q, k and v
        raise ConfigError(
            f"{config.num_query_groups} query groups cannot be split over {size} tensor-parallel ranks: a rank holds "
            "a part of a group, which is no part of q_proj, k_proj and v_proj; use at most as many ranks as groups"
        )
    sizes = (sum(one.features_out for one in layer.parts), layer.parts[0].features_in)
    if (module.output_size, module.input_size) != sizes:
        raise ConfigError(
            f"{layer.name} is {module.output_size} x {module.input_size}, the model's configuration says "
            f"{sizes[0]} x {sizes[1]}; slots need the layers that the configuration describes"
        )


def _known(model: Any) -> str:
    layers = _layers_of(model, model.decoder.layers[0])
    return ", ".join(sorted({part.path.rpartition(".")[2] for layer in layers for part in layer.parts}))
