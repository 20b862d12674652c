"""A network of a user's own."""

import flax.linen as nn  # noqa: TID253 - only hmx imports this file


class Small(nn.Module):
    """A policy and a value on one hidden layer."""

    num_actions: int
    value_width: int

    @nn.compact
    def __call__(self, obs):
        """Return logits and raw values."""
        hidden = nn.tanh(nn.Dense(8)(obs))
        return nn.Dense(self.num_actions)(hidden), nn.Dense(self.value_width, name="value_head")(hidden)


def make(cfg, spec, value_width):
    """Build the network."""
    return Small(spec.num_actions, value_width)
