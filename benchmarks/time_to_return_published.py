"""Hyperparameters that the peers of `time_to_return.py` publish for environments, by the names these have in hmx."""

from __future__ import annotations

from typing import Any

Published = dict[str, dict[str, Any]]

# configs/ of rejax, which its package lacks; what is missing is the default of its PPO
_REJAX_POLE = {
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 5,
    "num_steps": 100,
    "num_epochs": 5,
    "num_minibatches": 5,
    "learning_rate": 7.5e-4,
    "max_grad_norm": 0.5,
}
REJAX: Published = {
    "cartpole-discrete": _REJAX_POLE,
    "pendulum": {
        "num_envs": 100,
        "num_steps": 100,
        "num_epochs": 10,
        "num_minibatches": 10,
        "learning_rate": 1e-3,
        "max_grad_norm": 10,
        "gamma": 0.995,
        "ent_coef": 0.0,
        "normalize_observations": True,
    },
    "gymnax/Acrobot-v1": {**_REJAX_POLE, "normalize_observations": True},
    "navix/Navix-DoorKey-8x8-v0": {
        "agent_kwargs": {"activation": "swish"},
        "num_envs": 128,
        "num_steps": 32,
        "num_epochs": 2,
        "num_minibatches": 32,
        "learning_rate": 3e-4,
        "max_grad_norm": 10,
        "gamma": 0.95,
        "gae_lambda": 0.9,
        "normalize_observations": True,
    },
    "brax/reacher": {
        "env_kwargs": {"episode_length": 50},
        "agent_kwargs": {"activation": "tanh"},
        "num_envs": 128,
        "num_steps": 128,
        "num_epochs": 8,
        "num_minibatches": 64,
        "learning_rate": 0.00027520696850790545,
        "max_grad_norm": 0.1,
        "gamma": 0.95,
        "normalize_observations": True,
    },
}

# what differs from the configuration in its scripts: ppo.py for a pole, ppo_minigrid.py for a door and a key, and
# ppo_continuous_action.py for Brax, which has to do for a pendulum; examples/brax_minatar.ipynb has those of MinAtar
PUREJAXRL: Published = {
    "cartpole-discrete": {},
    "pendulum": {},
    "navix/Navix-DoorKey-5x5-v0": {},
    "gymnax/Breakout-MinAtar": {
        "LR": 5e-3,
        "NUM_ENVS": 64,
        "TOTAL_TIMESTEPS": 1e7,
        "NUM_MINIBATCHES": 8,
        "ACTIVATION": "relu",
    },
}

# hyperparams/ppo.yml of RL Baselines3 Zoo, which runs all environments in one process unless asked otherwise
ZOO: Published = {
    "cartpole-discrete": {
        "n_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
    },
    "pendulum": {
        "n_envs": 4,
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "ent_coef": 0.0,
        "learning_rate": 1e-3,
        "clip_range": 0.2,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
    "gymnasium/LunarLander-v3": {
        "n_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
}

# names of the files of environments in stoix/configs/env/gymnax; its PPO has one configuration for all of them
STOIX_FILES = {"cartpole-discrete": "cartpole", "gymnax/Acrobot-v1": "acrobot", "gymnax/Breakout-MinAtar": "breakout"}

PUBLISHED: dict[str, Published] = {
    "rejax": REJAX,
    "purejaxrl": PUREJAXRL,
    "stoix": {env: {} for env in STOIX_FILES},
    "sb3": ZOO,
}
