"""How to make a simulator, as plain data that is sent to a worker process."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from hmx.config.extras import needed
from hmx.config.references import FUNCTION, GYMNASIUM, names_code
from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest, one_line
from hmx.registry.own_options import DATACLASS, read_options, with_options
from hmx.registry.user_code import explaining, load_registering, open_module

Theirs = Any  # user code, or what it returns


class Recipe(NamedTuple):
    """What to make: an id of Gymnasium, or a class or function in user code."""

    env_id: str  # as the configuration names it
    name: str = ""  # id in Gymnasium; empty for user code
    reference: str = ""  # `./file.py`, `package.module:make`, or the id with the module that registers it
    attribute: str = ""  # class or function; empty for the one in the file
    my: tuple[tuple[str, Any], ...] = ()  # options of that code
    sha256: str = ""  # of its file
    max_steps: int = 0  # of an episode, in addition to the simulator's own limit; 0 for none
    render_mode: str | None = None


def make(recipe: Recipe) -> Theirs:
    """Make one simulator.

    Raises:
        HmxError: a package is missing, there is no such environment, or user code fails.
    """
    if recipe.name:
        return _of_gymnasium(recipe)
    module, path = open_module(recipe.reference, "env.id", recipe.sha256)
    what = f"environment {quoted(recipe.env_id)}"
    maker = find_maker(module, recipe.attribute)
    if maker is None:
        raise HmxError(f"cannot load {what}: {path.name} defines no simulator", GUIDE)
    options = read_options(getattr(module, DATACLASS, None), "env", recipe.env_id, what, recipe.my)
    with explaining(path, f"cannot build {what}"):
        given = {}
        if recipe.render_mode is not None and "render_mode" in inspect.signature(maker).parameters:
            given = {"render_mode": recipe.render_mode}
        return with_options(maker, options)(**given)


GUIDE = "docs/simulators.md shows what a simulator provides"


def _of_gymnasium(recipe: Recipe) -> Theirs:
    with needed("gymnasium"):
        import gymnasium
    given = {} if recipe.render_mode is None else {"render_mode": recipe.render_mode}
    reference, registered = f"{GYMNASIUM}{recipe.name}", contextlib.nullcontext()
    if names_code(reference):
        registered = load_registering(reference, "env.id", recipe.sha256)  # type: ignore[assignment]
    try:
        # our own check of steps replaces that of Gymnasium, which costs a tenth of a step
        with registered:
            return gymnasium.make(recipe.name, disable_env_checker=True, **given)
    except gymnasium.error.DependencyNotInstalled as error:
        message = f"{recipe.env_id} needs a package that is not installed: {one_line(error)}"
        hint = 'pip install "gymnasium[box2d,mujoco]", or the extra of Gymnasium that the message names'
        raise HmxError(message, hint) from None
    except ModuleNotFoundError as error:
        message = f"{recipe.env_id} needs a package that is not installed: {one_line(error)}"
        raise HmxError(message, f"install the package that provides {error.name}") from None
    except gymnasium.error.NamespaceNotFound as error:
        hint = f"name the package that has it before a colon, such as gymnasium/ale_py:{recipe.name}"
        raise HmxError(f"Gymnasium has no environment {quoted(recipe.name)}: {one_line(error)}", hint) from None
    except gymnasium.error.UnregisteredEnv as error:
        module, colon, name = recipe.name.rpartition(":")
        near = nearest(name, list(gymnasium.registry))
        hint = "import gymnasium; gymnasium.pprint_registry() lists them"
        hint = f"did you mean gymnasium/{module}{colon}{near}?" if near else hint
        raise HmxError(f"Gymnasium has no environment {quoted(recipe.name)}: {one_line(error)}", hint) from None
    except gymnasium.error.Error as error:
        raise HmxError(f"cannot make {recipe.env_id}: {one_line(error)}", GUIDE) from None


def is_simulator(thing: Theirs) -> bool:
    """Return whether an object, or a class, has what a simulator of Gymnasium has."""
    names = ("reset", "step") if isinstance(thing, type) else ("reset", "step", "observation_space", "action_space")
    functions = all(callable(getattr(thing, name, None)) for name in names[:2])
    return functions and all(hasattr(thing, name) for name in names)


def is_simulator_class(thing: Theirs) -> bool:
    """Return whether it is a class of simulators: `gymnasium.Env` has `reset(seed=...)`, environments in JAX a key."""
    if not isinstance(thing, type) or not is_simulator(thing):
        return False
    reset: Theirs = vars(thing).get("reset") or thing.reset  # type: ignore[attr-defined]
    return "seed" in inspect.signature(reset).parameters


def find_maker(module: ModuleType | SimpleNamespace, attribute: str) -> Theirs | None:
    """Return the maker of the simulator of a module: what `attribute` names, `make`, or its only class of simulators.

    Raises:
        HmxError: there are several classes, so one must be named.
    """
    if attribute:
        return getattr(module, attribute, None)
    if callable(getattr(module, FUNCTION, None)):
        return getattr(module, FUNCTION)
    if all(callable(getattr(module, name, None)) for name in ("reset", "step")):
        return None
    own = getattr(module, "__name__", "")
    classes = [value for value in vars(module).values() if is_simulator_class(value) and value.__module__ == own]
    if len(classes) > 1:
        names = [one.__name__ for one in classes]
        file = Path(getattr(module, "__file__", "") or "sim.py").name
        raise HmxError(f"{file} defines several simulators: {', '.join(names)}", f"name one: ./{file}:{names[0]}")
    return classes[0] if classes else None


def close(env: Theirs) -> None:
    """Close a simulator; errors do not matter any more."""
    with contextlib.suppress(Exception):
        getattr(env, "close", lambda: None)()
