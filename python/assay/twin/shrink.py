# SPDX-License-Identifier: Apache-2.0
"""A small configuration with the ratios of a large one.

Configurations call the same size by different names; the tables below say which names mean what. A name that stands
in no table keeps its value: kinds of norms, biases, soft caps, activations, the base of rotary positions.

The ratio of query to key/value heads is kept (at most 16), and so are the rotary share of a head, the parts of latent
attention, the remainder of the vocabulary by 64, ties of the head and scaling of rotary positions. Of every kind of
layer one is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

Values = dict[str, Any]

WINDOW = 24  # tokens a shrunken sliding window reaches back; prompts are longer
POSITIONS = 32_768  # so many are kept: a learned table may be as long
VOCABULARY = 512
EXPERTS = 8
LARGEST_HEAD = 64
LARGEST_GROUP = 16  # query heads that share one key/value head
STATE = 32  # of a state space

_WIDTH = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_n_heads")
_WITH_WIDTH = (
    "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "moe_intermediate_size", "intermediate_size_mlp",
    "shared_expert_intermediate_size", "shared_intermediate_size", "lru_width", "word_embed_proj_dim",
    "dim_model_base", "hidden_size_per_layer_input", "attention_hidden_size",
)  # fmt: skip
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "moe_top_k")
_WINDOWS = ("sliding_window", "attention_window_size", "window_size", "attention_chunk_size")
_CHUNKS = ("chunk_size", "mamba_chunk_size", "block_size")
_STATES = ("state_size", "mamba_d_state")
_STATE_HEADS = (
    ("num_heads", "head_dim", "n_groups"),
    ("mamba_n_heads", "mamba_d_head", "mamba_n_groups"),
)
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
_FIRST_DENSE = ("first_k_dense_replace",)
_PERIODS = (("attn_layer_period", "attn_layer_offset"), ("expert_layer_period", "expert_layer_offset"))
# Numbers of layers, and lists that transformers makes of other values.
_LAYER_NUMBERS = ("mlp_only_layers", "moe_layers", "attn_layer_indices")
_DERIVED = ("full_attn_idxs", "layers_block_type", "attention_layers", "qk_head_dim", "transformers_version")
_NESTED = ("attn_config", "ffn_config")  # MPT's and DBRX's
_SPECIAL_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id")


def shrink(config: Any, layers: int = 4, width: int = 128) -> Any:
    """The small configuration, of the same class.

    Args:
        config: of transformers, of a model that makes text; a multimodal one stands for its text part.
        layers: about so many; more where there are more kinds of layers.
        width: about so wide; wider where heads would become too small.

    Raises:
        ValueError: with one sentence, when nothing gets smaller or sizes are not understood.
    """
    text = config.get_text_config(decoder=True)
    old: Values = text.to_dict()
    new = _Shrinking(old, layers, width).run()
    if _first(new, _WIDTH) >= _first(old, _WIDTH) and _first(new, _LAYERS) >= _first(old, _LAYERS):
        raise ValueError(
            f"a {text.model_type} of {_first(old, _LAYERS)} layers of width {_first(old, _WIDTH)} "
            "cannot be made smaller; --same-size keeps its sizes"
        )
    try:
        return type(text).from_dict(new)
    except Exception as why:  # configurations hold their sizes against each other
        raise ValueError(f"transformers does not accept a {text.model_type} with small sizes: {why}") from why


def _first(values: Mapping[str, Any], names: Iterable[str]) -> int:
    """The value of the first of these names that has one; 0 when none has."""
    return next((int(values[name]) for name in names if isinstance(values.get(name), int)), 0)


def _multiple(value: float, of: int) -> int:
    """The multiple nearest to it, at least one."""
    return max(of, round(value / of) * of)


class _Shrinking:
    """One configuration on its way: `old` is as it was, `new` becomes the small one."""

    def __init__(self, old: Values, layers: int, width: int) -> None:
        self.old = old
        self.new = {name: value for name, value in old.items() if name not in _DERIVED}
        self.old_width = _first(old, _WIDTH)
        self.old_layers = _first(old, _LAYERS)
        if not self.old_width or not self.old_layers:
            raise ValueError(f"the configuration of {old.get('model_type')} says neither width nor layers")
        self.layers = min(layers, self.old_layers)
        self.width = min(width, self.old_width)

    def run(self) -> Values:
        self._layers()
        self._attention()
        self._latent_attention()
        self._state_space()
        self._linear_attention()
        self._widths(self.old, self.new)
        self._experts(self.old, self.new)
        for name in _NESTED:
            if isinstance(self.old.get(name), dict):
                self.new[name] = self._nested(self.old[name])
        self._windows()
        self._positions()
        self._tokens()
        return self.new

    def _set(self, names: Iterable[str], value: Any) -> None:
        """Sets the names that had a value."""
        for name in names:
            if self.old.get(name) is not None:
                self.new[name] = value

    # Layers

    def _layers(self) -> None:
        periods = [pair for pair in _PERIODS if isinstance(self.old.get(pair[0]), int)]
        kinds = self._kinds()
        cycle = self.old.get("block_types")
        least = max(len(set(kinds)), len(cycle) if isinstance(cycle, list) else 1, 2 if periods else 1)
        if _first(self.old, _FIRST_DENSE):
            least = max(least, 2)
        count = min(max(self.layers, least), self.old_layers)
        chosen = choose_layers(kinds, count)
        self._set(_LAYERS, count)
        for name, value in self._layer_lists().items():
            self.new[name] = [value[number] for number in chosen]
        for name in _LAYER_NUMBERS:
            if isinstance(self.old.get(name), list):
                self.new[name] = [place for place, number in enumerate(chosen) if number in self.old[name]]
        for period, offset in periods:
            shorter = min(self.old[period], count)
            self.new[offset] = self.old[offset] * shorter // self.old[period]
            self.new[period] = shorter
        for name in _FIRST_DENSE:
            if isinstance(self.old.get(name), int):
                self.new[name] = min(self.old[name], 1)
        if isinstance(self.old.get("decoder_sparse_step"), int):
            self.new["decoder_sparse_step"] = min(self.old["decoder_sparse_step"], 2)
        if isinstance(self.old.get("max_window_layers"), int):
            self.new["max_window_layers"] = sum(number < self.old["max_window_layers"] for number in chosen)
        if isinstance(self.old.get("num_kv_shared_layers"), int):
            self.new["num_kv_shared_layers"] = self.old["num_kv_shared_layers"] * count // self.old_layers
        self._alternating(count)

    def _alternating(self, count: int) -> None:
        """GPT-Neo's way: [[["global", "local"], 12]]."""
        types = self.old.get("attention_types")
        if isinstance(types, list) and types:
            pattern = types[0][0]
            whole = _multiple(count, len(pattern))
            self.new["attention_types"] = [[pattern, whole // len(pattern)]]
            self._set(_LAYERS, whole)

    def _layer_lists(self) -> dict[str, list[Any]]:
        return {
            name: value
            for name, value in self.new.items()
            if isinstance(value, list) and len(value) == self.old_layers > 1 and name not in _LAYER_NUMBERS
        }

    def _kinds(self) -> list[tuple[Any, ...]]:
        """What each layer is, as far as lists say so."""
        lists = [value for value in self._layer_lists().values() if all(isinstance(v, (str, int)) for v in value)]
        numbers = [self.old[name] for name in _LAYER_NUMBERS if isinstance(self.old.get(name), list)]
        return [
            (*(value[layer] for value in lists), *(layer in listed for listed in numbers))
            for layer in range(self.old_layers)
        ]

    # Attention

    def _attention(self) -> None:
        queries = _first(self.old, _HEADS) or (_first(self.old, ("num_heads",)) if "window_size" in self.old else 0)
        if not queries:
            self.new_width = _multiple(self.width, 32) if self.width >= 32 else self.width
            self._set(_WIDTH, self.new_width)
            return
        keys = self._key_heads(queries)
        new_queries, new_keys = heads(queries, keys)
        old_head = self.old.get("v_head_dim") or self.old.get("head_dim") or self.old_width // queries
        square = self.old_width == queries * old_head
        target = self.width * queries * old_head / self.old_width
        self.head = head_size(new_queries, old_head, target, self._rotary_share(old_head))
        self.new_width = new_queries * self.head if square else _multiple(self.width, 32)
        self._set(_WIDTH, self.new_width)
        self._set(_HEADS, new_queries)
        if "window_size" in self.old:  # GPT-Neo's
            self._set(("num_heads",), new_queries)
        self._set(_KEY_HEADS, new_keys if keys != queries else new_queries)
        self._set(("head_dim",), self.head)
        self._scales(old_head)
        if isinstance(self.old.get("rotary_dim"), int):
            self.new["rotary_dim"] = self.old["rotary_dim"] * self.head // old_head
        self._rope(old_head)

    def _key_heads(self, queries: int) -> int:
        if self.old.get("multi_query") and not self.old.get("new_decoder_architecture"):
            return 1
        nested = self.old.get("attn_config")
        return _first(self.old, _KEY_HEADS) or _first(nested if isinstance(nested, dict) else {}, _KEY_HEADS) or queries

    def _rotary_share(self, head: int) -> float:
        ropes = self._ropes(self.old)
        shares = [rope["partial_rotary_factor"] for rope in ropes if rope.get("partial_rotary_factor")]
        if isinstance(self.old.get("rotary_dim"), int):
            shares.append(self.old["rotary_dim"] / head)
        return float(min(shares, default=1.0))

    def _scales(self, old_head: int) -> None:
        """Factors of scores that stand for the size of a head."""
        scalar = self.old.get("query_pre_attn_scalar")
        if isinstance(scalar, (int, float)):
            self.new["query_pre_attn_scalar"] = type(scalar)(scalar * self.head / old_head)
        factor = self.old.get("attention_multiplier")
        if isinstance(factor, float):
            for power in (-1.0, -0.5):
                if abs(factor - old_head**power) < 1e-3 * factor:
                    self.new["attention_multiplier"] = self.head**power

    def _ropes(self, values: Values) -> list[Values]:
        """Settings of rotary positions; some models have them for each kind of attention."""
        rope = values.get("rope_parameters")
        if not isinstance(rope, dict):
            return []
        inner = [value for value in rope.values() if isinstance(value, dict)]
        return inner or [rope]

    def _rope(self, old_head: int) -> None:
        self.new["rope_parameters"] = _rope_of_head(self.old.get("rope_parameters"), self.head / old_head)
        if self.new["rope_parameters"] is None:
            del self.new["rope_parameters"]

    def _latent_attention(self) -> None:
        """DeepSeek's: parts of a head and ranks keep their proportions to the values' part."""
        if not self.old.get("v_head_dim") or not self.old.get("kv_lora_rank"):
            return
        share = self.head / self.old["v_head_dim"]
        for name in ("v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim"):
            self.new[name] = _multiple(self.old[name] * share, 2)
        if self.old.get("head_dim") is not None:
            self.new["head_dim"] = self.new["qk_rope_head_dim"]
        rank = max(32, _multiple(self.old["kv_lora_rank"] * self.new_width / self.old_width, 8))
        if self.old.get("q_lora_rank"):
            self.new["q_lora_rank"] = _multiple(rank * self.old["q_lora_rank"] / self.old["kv_lora_rank"], 8)
        self.new["kv_lora_rank"] = rank

    # Other mixers

    def _state_space(self) -> None:
        for name in _STATES:
            if isinstance(self.old.get(name), int):
                self.new[name] = min(self.old[name], STATE)
        for name in ("time_step_rank", "mamba_dt_rank"):
            if isinstance(self.old.get(name), int):
                self.new[name] = max(1, -(-self.old[name] * self.new_width // self.old_width))
        expand = self.old.get("mamba_expand", self.old.get("expand"))
        for count, size, groups in _STATE_HEADS:
            if isinstance(expand, (int, float)) and isinstance(self.old.get(count), int) and size in self.old:
                inner = int(expand * self.new_width)
                self.new[size] = min(32, inner // 4)
                self.new[count] = inner // self.new[size]
                self._set(("mamba_d_ssm",), inner)
                if isinstance(self.old.get(groups), int):
                    self.new[groups] = min(self.old[groups], 2)
        for name in _CHUNKS:
            if isinstance(self.old.get(name), int) and self.old[name] > 16:
                self.new[name] = 16

    def _linear_attention(self) -> None:
        """Qwen3-Next's."""
        keys, values = self.old.get("linear_num_key_heads"), self.old.get("linear_num_value_heads")
        if isinstance(keys, int) and isinstance(values, int):
            self.new["linear_num_key_heads"] = min(keys, 2)
            self.new["linear_num_value_heads"] = values * self.new["linear_num_key_heads"] // keys
            self._set(("linear_key_head_dim", "linear_value_head_dim"), 16)

    # Feed-forward

    def _widths(self, old: Values, new: Values) -> None:
        for name in _WITH_WIDTH:
            value = old.get(name)
            if isinstance(value, int) and value:
                scaled = value * self.new_width / self.old_width
                new[name] = self.new_width if value == self.old_width else min(value, _multiple(scaled, 32))

    def _experts(self, old: Values, new: Values) -> None:
        count = _first(old, _EXPERTS)
        if not count:
            return
        left = min(count, EXPERTS)
        reachable = left
        if isinstance(old.get("n_group"), int) and old["n_group"] > 1:
            new["n_group"] = 4
            new["topk_group"] = max(1, min(3, old["topk_group"] * 4 // old["n_group"]))
            reachable = left * new["topk_group"] // new["n_group"]
        for name in _EXPERTS:
            if isinstance(old.get(name), int):
                new[name] = left
        for name in _EXPERTS_PER_TOKEN:
            if isinstance(old.get(name), int):
                new[name] = old[name] if old[name] < reachable else max(1, reachable // 2)

    def _nested(self, old: Values) -> Values:
        new = {name: value for name, value in old.items() if name != "model_type"}
        for name in _WIDTH:
            if name in old:
                new[name] = self.new_width
        for name in _KEY_HEADS:
            if isinstance(old.get(name), int):
                new[name] = heads(_first(self.old, _HEADS), old[name])[1]
        self._widths(old, new)
        self._experts(old, new)
        return new

    # Positions and tokens

    def _windows(self) -> None:
        for name in _WINDOWS:
            value = self.old.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > WINDOW:
                self.new[name] = WINDOW

    def _positions(self) -> None:
        """Where rotary positions are scaled, the length belongs to the scale and stays."""
        kinds = [rope.get("rope_type", "default") for rope in self._ropes(self.old)]
        if any(kind not in ("default", "linear") for kind in kinds):
            return
        for name in _POSITIONS:
            if isinstance(self.old.get(name), int):
                self.new[name] = min(self.old[name], POSITIONS)

    def _tokens(self) -> None:
        size = self.old.get("vocab_size")
        if not isinstance(size, int):
            raise ValueError(f"the configuration of {self.old.get('model_type')} has no vocab_size")
        small = min(size, VOCABULARY + size % 64)
        self.new["vocab_size"] = small
        usual = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        taken: dict[int, int] = {}
        for name in _SPECIAL_TOKENS:
            value = self.old.get(name)
            token = value[0] if isinstance(value, list) and value else value
            if isinstance(token, int) and not 0 <= token < small:
                self.new[name] = taken.setdefault(token, usual.get(name, 1))
            elif isinstance(value, list):
                self.new[name] = token


def heads(queries: int, keys: int) -> tuple[int, int]:
    """Few heads in the same ratio: (32, 8) becomes (8, 2), (32, 32) becomes (4, 4), (8, 1) stays.

    Two key/value heads are left where there were several, because with one no engine can mix them up.
    """
    if queries % keys:
        raise ValueError(f"{queries} query heads are no multiple of {keys} key/value heads")
    group = queries // keys
    if group == 1:
        few = min(queries, 4)
        return few, few
    if keys == 1 and group > LARGEST_GROUP:
        group = 8 if group % 2 == 0 else 7
    few = min(keys, 2)
    return group * few, few


def head_size(count: int, old: int, target: float, rotary_share: float) -> int:
    """The size of a head with which `count` of them come nearest to the target.

    Args:
        old: no head is larger.
        rotary_share: of a head; an even number of its channels turns.

    All heads together should be a multiple of 32 wide, which is a block of Q8_0.
    """
    least = min(old, 8 if count >= 24 else 16)
    turned = [size for size in range(least, min(old, LARGEST_HEAD) + 1, 2) if _is_even(size * rotary_share)]
    even = [size for size in turned if size % 8 == 0] or turned
    blocks = [size for size in even if count * size % 32 == 0] or even
    if not blocks:
        return min(old, LARGEST_HEAD)
    return min(blocks, key=lambda size: abs(count * size - target))


def _is_even(value: float) -> bool:
    return value >= 2 and abs(value / 2 - round(value / 2)) < 1e-6


def choose_layers(kinds: list[tuple[Any, ...]], count: int) -> list[int]:
    """Numbers of the layers that stay: consecutive ones with every kind if there are such.

    Of several such stretches it is the first of those whose rarest kind is most frequent.
    """
    wanted = set(kinds)
    best: Optional[int] = None
    most = 0
    for start in range(len(kinds) - count + 1):
        stretch = kinds[start : start + count]
        rarest = min(stretch.count(kind) for kind in wanted)
        if rarest > most:
            best, most = start, rarest
    if best is not None:
        return list(range(best, best + count))
    firsts = {kinds.index(kind) for kind in wanted}
    others = [number for number in range(len(kinds)) if number not in firsts]
    return sorted([*firsts, *others[: count - len(firsts)]])


def _rope_of_head(rope: Any, share: float) -> Any:
    """The settings for a head of `share` times the size: lists have a factor for each pair of channels."""
    if not isinstance(rope, dict):
        return rope
    small: Values = {}
    for name, value in rope.items():
        if isinstance(value, dict):
            small[name] = _rope_of_head(value, share)
        elif isinstance(value, list) and name.endswith("_factor"):
            count = max(1, round(len(value) * share))
            small[name] = [value[number * len(value) // count] for number in range(count)]
        elif name == "mrope_section":
            small[name] = [max(1, round(part * share)) for part in value]
        else:
            small[name] = value
    return small
