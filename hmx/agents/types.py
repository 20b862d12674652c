"""The former place of `hmx.algos.types`."""

from hmx.algos.types import (  # noqa: F401
    Algorithm,
    Carry,
    Decision,
    Episode,
    Hypers,
    LearnerT,
    Params,
    RolloutState,
    Starts,
    StateT,
    TrainState,
    Tree,
    keep_learned,
    split_actors,
    tree_where,
)
