"""The flax modules of the networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from hmx.config.schema import Dtype, Init, NetConfig
from hmx.types import Array, Key

Kind = Literal["mlp", "cells", "cnn"]
"""What a network reads: vectors, the cells of a board, or images."""

HIDDEN = "intermediates"
"""The collection in which layers leave the activations of their hidden units, if it is mutable."""

_COMPUTE: dict[Dtype, Any] = {"float32": None, "bfloat16": jnp.bfloat16}
"""None computes in the type of inputs and parameters: float32, unless parameters have higher precision."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}


def orthogonal(gain: float) -> nn.initializers.Initializer:
    """Return an initialiser of orthogonal weights (Saxe et al. 2014, arXiv:1312.6120)."""
    draw = nn.initializers.orthogonal(gain)

    def init(key: Key, shape: Sequence[int], dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        del out_sharding
        return _one_by_one(lambda k: draw(k, shape, dtype))(key)

    return init


def orthogonal_gates(gates: int) -> Callable[[Key, Sequence[int]], Array]:
    """Return an initialiser of recurrent weights `[units, gates x units]`, orthogonal for each gate."""
    draw = nn.initializers.orthogonal(1.0)

    def init(key: Key, shape: Sequence[int]) -> Array:
        square = (shape[0], shape[0])
        drawn = _one_by_one(lambda k: jax.lax.map(lambda k_gate: draw(k_gate, square), jax.random.split(k, gates)))(key)
        return jnp.moveaxis(drawn, 0, 1).reshape(shape)

    return init


def _one_by_one(draw: Callable[[Key], Array]) -> Callable[[Key], Array]:
    """Return `draw`, computed for one key at a time even under `vmap`.

    A batched QR factorisation splits its batch over XLA's CPU threads and waits for them from one of them: with two
    threads, a run of several seeds could wait forever (jaxlib 0.10.2).
    """
    drawn: Callable[[Key], Array] = jax.custom_batching.sequential_vmap(draw)
    return drawn


def dense(
    width: int, gain: float, name: str, init: Init = NetConfig.init, dtype: Dtype = NetConfig.compute_dtype
) -> nn.Dense:
    """Return a linear layer with zero bias; `gain` 0 makes all weights zero.

    Args:
        width: outputs.
        gain: multiplies the initial weights.
        name: name of the parameters.
        init: `orthogonal`, or `lecun_uniform`: uniform within `sqrt(3 / inputs)` (LeCun et al. 1998).
        dtype: dtype of the computation and its result.
    """
    compute = _COMPUTE[dtype]
    return nn.Dense(width, dtype=compute, kernel_init=_kernel_init(gain, init), name=name)


def _kernel_init(gain: float, init: Init) -> nn.initializers.Initializer:
    if not gain:
        return nn.initializers.zeros_init()
    return orthogonal(gain) if init == "orthogonal" else nn.initializers.variance_scaling(gain**2, "fan_in", "uniform")


class Torso(nn.Module):
    """Hidden layers `[N, F] -> [N, widths[-1]]`, which compute in `net.compute_dtype`, also the dtype of the result."""

    widths: tuple[int, ...]
    cfg: NetConfig

    @nn.compact
    def __call__(self, x: Float[Array, "N F"]) -> Float[Array, "N H"]:
        """Apply each layer: linear and non-linearity, with an optional layer norm before or after the latter."""
        cfg = self.cfg
        for i, width in enumerate(self.widths):
            x = dense(width, cfg.gain_hidden, f"dense_{i}", cfg.init, cfg.compute_dtype)(x)
            if cfg.layer_norm and cfg.norm_order == "pre":
                x = nn.LayerNorm(dtype=_COMPUTE[cfg.compute_dtype], name=f"norm_{i}")(x)
            x = ACTIVATIONS[cfg.activation](x)
            self.sow(HIDDEN, "units", x)
            if cfg.layer_norm and cfg.norm_order == "post":
                x = nn.LayerNorm(dtype=_COMPUTE[cfg.compute_dtype], name=f"norm_{i}")(x)
        return x


class Cells(nn.Module):
    """Scalars `[N, S]` and board cells `[N, C, F]` -> `[N, S + C x cell_features]`: one small layer for all cells."""

    cfg: NetConfig

    @nn.compact
    def __call__(self, x: tuple[Float[Array, "N S"], Float[Array, "N C F"]]) -> Float[Array, "N H"]:
        """Project every cell, and put the scalars next to the result."""
        scalars, cells = x
        cfg = self.cfg
        layer = dense(cfg.cell_features, cfg.gain_hidden, "cell", cfg.init, cfg.compute_dtype)
        seen = ACTIVATIONS[cfg.activation](layer(cells.reshape(-1, cells.shape[-1])))
        self.sow(HIDDEN, "units", seen)
        return jnp.concatenate([scalars.astype(seen.dtype), seen.reshape(scalars.shape[0], -1)], axis=-1)


class ConvLayer(NamedTuple):
    """A convolution with square kernels, without padding."""

    kernel: int  # side; at most that of the image
    stride: int
    features: int


def conv_layers(side: int) -> tuple[ConvLayer, ...]:
    """Return the convolutions that fit images whose shorter side has so many pixels.

    From 36 pixels those of Mnih et al. 2015 (doi:10.1038/nature14236), below 16 that of MinAtar (Young & Tian 2019,
    arXiv:1903.03176), and smaller strides between.
    """
    if side >= 36:
        return ConvLayer(8, 4, 32), ConvLayer(4, 2, 64), ConvLayer(3, 1, 64)
    if side >= 16:
        return ConvLayer(4, 2, 32), ConvLayer(3, 2, 32)
    return (ConvLayer(3, 1, 16),)


def convolve(x: Float[Array, "N H W C"], kernel: Float[Array, "K L C F"], stride: int) -> Float[Array, "N P Q F"]:
    """Convolve images without padding.

    On a CPU as a product of patches and kernel: XLA's own convolutions take about 20 times as long there if they are in
    a loop, as gradient steps are (jaxlib 0.10.2).
    """
    if jax.default_backend() == "cpu":
        return _convolve_patches(x, kernel, stride)
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=layout)


def _convolve_patches(x: Array, kernel: Array, stride: int) -> Array:
    height, width = ((size - side) // stride + 1 for size, side in zip(x.shape[1:3], kernel.shape[:2], strict=True))
    rows, columns = stride * (height - 1) + 1, stride * (width - 1) + 1
    places = [(i, j) for i in range(kernel.shape[0]) for j in range(kernel.shape[1])]
    shifted = [x[:, i : i + rows : stride, j : j + columns : stride] for i, j in places]
    return jnp.concatenate(shifted, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])


class Convolution(nn.Module):
    """One layer of `Convolutions`, before the non-linearity; the bias starts at 0."""

    layer: ConvLayer
    cfg: NetConfig

    @nn.compact
    def __call__(self, x: Float[Array, "N H W C"]) -> Float[Array, "N P Q F"]:
        """Apply the layer; its kernel is at most as large as the image."""
        side, features = self.layer.kernel, self.layer.features
        shape = (min(side, x.shape[1]), min(side, x.shape[2]), x.shape[3], features)
        kernel = self.param("kernel", _kernel_init(self.cfg.gain_hidden, self.cfg.init), shape)
        bias = self.param("bias", nn.initializers.zeros_init(), (features,))
        compute = _COMPUTE[self.cfg.compute_dtype] or x.dtype
        convolved = convolve(x.astype(compute), kernel.astype(compute), self.layer.stride)
        return convolved + bias.astype(compute)[None, None, None]


class Convolutions(nn.Module):
    """Images `[N, H, W, C]` -> `[N, F]`: the layers of `conv_layers`, flattened."""

    cfg: NetConfig

    @nn.compact
    def __call__(self, x: Float[Array, "N H W C"]) -> Float[Array, "N F"]:
        """Apply each layer: convolution and non-linearity."""
        for i, layer in enumerate(conv_layers(min(x.shape[1:3]))):
            x = Convolution(layer, self.cfg, name=f"conv_{i}")(x)
            x = ACTIVATIONS[self.cfg.activation](x)
            self.sow(HIDDEN, "units", x)
        return x.reshape(x.shape[0], -1)


def trunk(cfg: NetConfig, kind: Kind, x: Any, name: str, widths: tuple[int, ...]) -> Array:
    """Run layers of the calling module on what `hmx.nets.build.features` returns: one for cells or images, and a torso.

    Args:
        cfg: architecture.
        kind: kind of network.
        x: scalars and cells, images, or vectors.
        name: name of the torso.
        widths: widths of its layers.
    """
    if kind == "cells":
        x = Cells(cfg, name=f"{name}_cells")(x)
    elif kind == "cnn":
        x = Convolutions(cfg, name=f"{name}_conv")(x)
    out: Array = Torso(widths, cfg, name=name)(x)
    return out


Hidden = tuple[Array, ...]  # hidden state of one layer: arrays [N, units], the last of which is its output


class Weights(NamedTuple):
    """Weights of the recurrence itself."""

    kernel: Array  # [units, gates x units]
    bias: Array  # [units], of the GRU's candidate; unused by the LSTM


class RecurrentCell(NamedTuple):
    """A kind of recurrent layer: `step(weights, hidden, inputs [N, gates x units]) -> hidden`."""

    gates: int
    states: int  # arrays of a hidden state
    step: Callable[[Weights, Hidden, Array], Hidden]


def _gru(weights: Weights, hidden: Hidden, inputs: Array) -> Hidden:
    (h,) = hidden
    update_in, reset_in, candidate_in = jnp.split(inputs, 3, axis=-1)
    update_h, reset_h, candidate_h = jnp.split(h @ weights.kernel, 3, axis=-1)
    update, reset = jax.nn.sigmoid(update_in + update_h), jax.nn.sigmoid(reset_in + reset_h)
    candidate = jnp.tanh(candidate_in + reset * (candidate_h + weights.bias[None]))
    return ((1.0 - update) * candidate + update * h,)


def _lstm(weights: Weights, hidden: Hidden, inputs: Array) -> Hidden:
    cell, h = hidden
    write, forget, candidate, show = jnp.split(inputs + h @ weights.kernel, 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
    return cell, jax.nn.sigmoid(show) * jnp.tanh(cell)


CELLS = {"gru": RecurrentCell(3, 1, _gru), "lstm": RecurrentCell(4, 2, _lstm)}


def initial_hidden(kind: str, units: int, batch: tuple[int, ...]) -> Hidden:
    """Return the initial hidden state: zeros `[*batch, units]`."""
    return tuple(jnp.zeros((*batch, units), jnp.float32) for _ in range(CELLS[kind].states))


class RecurrentLayer(nn.Module):
    """A GRU (Cho et al. 2014, arXiv:1406.1078, in the form of cuDNN) or an LSTM (Hochreiter & Schmidhuber 1997).

    The recurrent weights of each gate start orthogonal; the forget gate of the LSTM starts open, with bias 1
    (Jozefowicz et al. 2015).
    """

    kind: str
    units: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "T N F"], hidden: Hidden, reset: Bool[Array, "T N"]
    ) -> tuple[Float[Array, "T N units"], Hidden]:
        """Return the output at each step, and the hidden state after the last.

        Args:
            x: inputs `[T, N, F]`.
            hidden: before the first step, arrays `[N, units]`.
            reset: the hidden state is set to zero where it holds, before it is used.
        """
        cell, width = CELLS[self.kind], CELLS[self.kind].gates * self.units
        inputs = nn.Dense(width, bias_init=_input_bias(self.kind, self.units), name="input")(x)
        weights = Weights(
            self.param("kernel", orthogonal_gates(cell.gates), (self.units, width)),
            self.param("bias", nn.initializers.zeros_init(), (self.units,)) if self.kind == "gru" else jnp.zeros(()),
        )

        def step(hidden: Hidden, seen: tuple[Array, Array]) -> tuple[Hidden, Array]:
            inputs_t, reset_t = seen
            kept = tuple(jnp.where(reset_t[:, None], 0.0, leaf) for leaf in hidden)
            hidden = cell.step(weights, kept, inputs_t)
            return hidden, hidden[-1]

        if x.shape[0] == 1:
            hidden, shown = step(hidden, (inputs[0], reset[0]))
            shown = shown[None]
        else:
            hidden, shown = jax.lax.scan(step, hidden, (inputs, reset))
        self.sow(HIDDEN, "units", shown)
        return shown, hidden


def _input_bias(kind: str, units: int) -> nn.initializers.Initializer:
    def init(key: Key, shape: Sequence[int], dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        del key, out_sharding
        bias = jnp.zeros(math.prod(shape), dtype)
        return bias.at[units : 2 * units].set(1.0) if kind == "lstm" else bias

    return init
