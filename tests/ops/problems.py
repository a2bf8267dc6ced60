"""Draw random attention problems: shapes, options, steep and flat scores, odd strides, and NaN without effect."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

LAYOUTS = ("plain", "transposed", "sliced", "reversed", "broadcast")


@dataclass
class Problem:
    """The arguments of a call, and the keys that its options hide."""

    arrays: dict[str, np.ndarray]
    """q, k, v, and the bias and the mask if there are any."""
    options: dict[str, object] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[B,H,T,S]"""
        return (*self.arrays["q"].shape[:3], self.arrays["k"].shape[2])

    def call(self, attention, dtype=np.float32, **more):
        """Call attention() with these arguments, with the floats converted to that dtype."""
        # astype would undo the strides.
        arrays = {name: array if array.dtype in (bool, dtype) else array.astype(dtype)
                  for name, array in self.arrays.items()}  # fmt: skip
        return attention(**arrays, **self.options, **more)

    def seen(self) -> np.ndarray:
        """Return bool [B,H,T,S]: the keys that band, mask and lengths leave visible."""
        B, _, T, S = self.shape
        offset = np.broadcast_to(self.options.get("q_offset") or 0, B)[:, None, None, None]
        distance = np.arange(S) - np.arange(T)[:, None] - offset
        left, right = self.options.get("window") or (None, None)
        lengths = self.options.get("kv_lengths")
        seen = np.full(self.shape, True)
        if self.options.get("causal"):
            seen &= distance <= 0
        if left is not None:
            seen &= distance >= -left
        if right is not None:
            seen &= distance <= right
        if lengths is not None:
            seen &= np.arange(S) < np.asarray(lengths)[:, None, None, None]
        return seen & self.arrays["mask"] if "mask" in self.arrays else seen

    def steepness(self) -> float:
        """Return the largest sum of magnitudes of a score's terms; a score's error is about as many roundings of 1."""
        q, k = (np.abs(np.nan_to_num(self.arrays[name].astype(np.float64), posinf=0, neginf=0)) for name in "qk")
        scores = q @ np.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(2, 3)
        scores *= abs(self.options.get("scale", q.shape[3] ** -0.5))
        if "bias" in self.arrays:
            scores += np.abs(np.nan_to_num(self.arrays["bias"].astype(np.float64), posinf=0, neginf=0))
        return scores.max(initial=0.0, where=self.seen())


def lay_out(array: np.ndarray, layout: str, rng: np.random.Generator) -> np.ndarray:
    """Return the same numbers, read-only, with strides of that kind; between them lies NaN, or True in a mask."""
    if layout == "transposed":
        order = rng.permutation(array.ndim)
        array = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    elif layout == "sliced":
        steps = rng.integers(1, 4, array.ndim)
        gaps = np.full(np.array(array.shape) * steps, True if array.dtype == bool else np.nan, array.dtype)
        view = gaps[tuple(slice(step - 1, None, step) for step in steps)]
        view[...] = array
        array = view
    elif layout == "reversed":
        every = tuple(slice(None, None, -1) for _ in array.shape)
        array = np.ascontiguousarray(array[every])[every]
    elif layout == "plain":
        array = array.copy()
    array.setflags(write=False)
    return array


@st.composite
def problems(draw, longest: int = 150, widest: int = 70, nan_where_seen: bool = True) -> Problem:
    """Draw any attention that `engine.ops.attention` describes, except score_mod."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    B, G, group = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    T, S = draw(st.integers(0, longest)), draw(st.integers(0, longest))
    d, e = draw(st.integers(1, widest)), draw(st.integers(1, widest))
    shape = (B, G * group, T, S)
    problem = Problem({name: rng.standard_normal(own, np.float32) for name, own in (
        ("q", (*shape[:3], d)), ("k", (B, G, S, d)), ("v", (B, G, S, e)))}, draw(options(B, T, S)))  # fmt: skip
    # Scores range from tiny ones, whose exponentials all round to 1, to scores of which one has all the weight.
    problem.arrays["q"] *= np.float32(draw(st.sampled_from((1.0, 1.0, 1e-30, 30.0, 1e4))))
    if draw(st.booleans()):
        problem.arrays["mask"] = rng.random(draw(broadcastable(shape))) < draw(st.sampled_from((0.02, 0.5, 0.9)))
    if draw(st.booleans()):
        bias = problem.arrays["bias"] = rng.standard_normal(draw(broadcastable(shape)), np.float32)
        bias[rng.random(bias.shape) < draw(st.sampled_from((0.0, 0.3, 0.9)))] = -np.inf
    layouts = {name: draw(st.sampled_from(LAYOUTS)) for name in problem.arrays}
    for name, array in problem.arrays.items():
        if layouts[name] == "broadcast" and array.size:
            axis = rng.integers(array.ndim)
            problem.arrays[name] = np.broadcast_to(array.take([0], axis), array.shape)
    own = [name for name in layouts if layouts[name] != "broadcast"]
    plant(problem, own, rng, where_seen=nan_where_seen and draw(st.booleans()))
    problem.arrays = {name: lay_out(array, layouts[name], rng) for name, array in problem.arrays.items()}
    return problem


@st.composite
def options(draw, B: int, T: int, S: int) -> dict[str, object]:
    """Draw some of the options that are not arrays."""
    side = st.none() | st.integers(0, 20)
    offset = st.integers(-T, S)
    everything = {
        "scale": st.sampled_from((0.3, -1.0)),
        "causal": st.booleans(),
        "window": st.tuples(side, side),
        "softcap": st.sampled_from((0.5, 50.0)),
        "kv_lengths": st.lists(st.integers(0, S), min_size=B, max_size=B),
        "q_offset": offset | st.lists(offset, min_size=B, max_size=B),
    }
    return draw(st.fixed_dictionaries({}, optional=everything))


@st.composite
def broadcastable(draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that broadcasts to the given one."""
    own = tuple(n if draw(st.booleans()) else 1 for n in shape)
    return own[draw(st.integers(0, next((i for i, n in enumerate(own) if n != 1), 3))) :]


def plant(problem: Problem, names: list[str], rng: np.random.Generator, where_seen: bool) -> None:
    """Write NaN and infinity where no query sees them and, if asked, NaN to a key and a value that some queries see."""
    B, H, T, S = problem.shape
    G = problem.arrays["k"].shape[1]
    seen = problem.seen()
    hidden_keys = ~seen.reshape(B, G, H // G, T, S).any(axis=(2, 3))
    used = seen & ~np.isneginf(problem.arrays["bias"]) if "bias" in problem.arrays else seen
    unused_values = ~used.reshape(B, G, H // G, T, S).any(axis=(2, 3))
    poison = np.array([np.nan, np.inf, -np.inf], np.float32)
    for name, where in (("k", hidden_keys), ("v", unused_values)):
        if name in names:
            array = problem.arrays[name]
            array[where] = rng.choice(poison, (int(where.sum()), array.shape[-1]))
            if where_seen and S:
                array[rng.integers(B), rng.integers(G), rng.integers(S)] = np.nan
    if "bias" in names:
        bias = problem.arrays["bias"]
        spread = (1,) * (4 - bias.ndim) + bias.shape
        single = tuple(axis for axis in range(4) if spread[axis] == 1)
        hidden = ~seen.any(axis=single, keepdims=True).reshape(bias.shape)
        bias[hidden] = rng.choice(poison, int(hidden.sum()))
