"""Policy and value networks, and networks of action values."""

from hmx.nets.build import Net, NetOutput, ObsSpec, make_net
from hmx.nets.q_network import QNet, make_q_net

__all__ = ["Net", "NetOutput", "ObsSpec", "QNet", "make_net", "make_q_net"]
