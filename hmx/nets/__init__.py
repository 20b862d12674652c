"""Policy and value networks."""

from hmx.nets.build import Net, NetOutput, ObsSpec, make_net

__all__ = ["Net", "NetOutput", "ObsSpec", "make_net"]
