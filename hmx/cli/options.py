"""Command-line options: those generated from declared options, and those that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_in
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hmx.cli import completion
from hmx.config import presets
from hmx.config.coerce import show
from hmx.config.fields import FIELDS, Field, fields_of
from hmx.config.option import CONFIG_PANEL, OUTPUT_PANEL, RUN_PANEL
from hmx.errors import HmxError
from hmx.reports.compute_config.inputs import INPUT_FIELDS
from hmx.runs.cluster.hosts import Hosts

if TYPE_CHECKING:
    from hmx.registry.load import Loaded

Typed = Mapping[str, Any]
"""The typed values by key: see `with_options`."""

Command = Callable[..., None]
_OFFERED: dict[str, Callable[..., object]] = {
    "UPDATE": completion.checkpoints, "RUN": completion.run_names, "OTHER": completion.run_names,
    "METRIC": completion.metrics, "RULE": completion.health_rules,
    "INPUT=N,...": completion.offer([f"{name}=" for name in INPUT_FIELDS]),
}  # fmt: skip
_METAVARS = {"int": "N", "float": "X", "str": "TEXT", "tuple[int, ...]": "N,..."}


def with_options(
    fields: Iterable[Field] = (), default: str = "", changing: bool = False
) -> Callable[[Command], Command]:
    """Give a command an option for each field of its parameters that are dataclasses; `Commands` does so for each.

    The fields of a request are declared with `hmx.config.option.opt`, and types, ranges and choices are checked before
    the command runs; fields of other dataclasses, such as `hmx.cli.output.Outputs`, are annotated like parameters:

        def score_buffer(path: PathArgument, request: ScoreRequest, *, outputs: Outputs) -> None:

    The parameter `typed` is replaced by an option for each of `fields`. It is a mapping from the key of each option
    that was given to its text, which `hmx.registry.load.load` checks together with all other problems.

    Args:
        fields: options of the configuration, see `flagged`.
        default: value of configuration keys that are not given, if it is not their default.
        changing: whether the command changes a run that has a state. Options whose values such a run keeps are then
            hidden; the command explains why it refuses them.
    """
    keys = {f"{field.section}_{field.name}": field for field in fields}

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        types = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        groups = {name: kind for name, kind in types.items() if isinstance(kind, type) and is_dataclass(kind)}
        for parameter in signature.parameters.values():
            if parameter.name == "typed":
                parameters += [
                    _parameter(name, field, default, hidden=changing and not field.may_change)
                    for name, field in keys.items()
                ]
            elif kind := groups.get(parameter.name):
                declared = [_parameter(field.name, field, "") for field in fields_of(kind).values()]
                parameters += declared or inspect.signature(kind, eval_str=True).parameters.values()
            else:
                parameters.append(parameter)
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            from hmx.registry.load import read_request

            if "typed" in signature.parameters:
                typed = {field.key: given.pop(name) for name, field in keys.items()}
                given["typed"] = {key: value for key, value in typed.items() if value is not None}
            for name, kind in groups.items():
                flags = fields_of(kind)  # a request may also have fields that are not options
                names = [field.name for field in flags.values() or fields_in(kind)]
                values = {name: given.pop(name) for name in names}
                asked = {flag: values[field.name] for flag, field in flags.items()}
                given[name] = read_request(kind, asked) if flags else kind(**values)
            command(**given)

        vars(wrapper)["__signature__"] = signature.replace(parameters=parameters)
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


def _parameter(name: str, field: Field, default: str, hidden: bool = False) -> inspect.Parameter:
    """Make the parameter for an option; its value is None if the option is not given."""
    kind: Any = bool if field.kind == "bool" else list[str] if field.repeatable else str
    spelling = f"{field.flag}/--no-{field.flag[2:]}" if field.kind == "bool" and field.default else field.flag
    metavar = "" if kind is bool else field.metavar or ("NAME" if field.choices else _METAVARS[field.kind])
    offered: Callable[..., object] | None = _OFFERED.get(metavar)
    if field.values and kind is not bool:
        offered = completion.offer(field.values)
    spellings = [spelling, field.short] if field.short else [spelling]
    annotation = Annotated[
        kind | None,
        ask(spellings, metavar, help_of(field, default), field.panel, autocompletion=offered, hidden=hidden),
    ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def flagged(*keys: str) -> list[Field]:
    """Return the fields of the configuration that have their own option: those of `keys`, or all, panel by panel."""
    fields = [FIELDS[key] for key in keys] or [field for field in FIELDS.values() if field.flag]
    return sorted(fields, key=lambda field: (RUN_PANEL, CONFIG_PANEL, OUTPUT_PANEL).index(field.panel))


SIZE_OPTIONS = flagged(
    "run.num_seeds", "run.devices", "run.total_steps", "env.id", "env.num_envs", "net.kind", "algo.name",
)  # fmt: skip
"""Options of `hmx train` on which speed and memory depend, for commands that measure or compute them."""

_OWN = "./FILE.py or package.module:make"
_MORE = {"env.id": f", EXTRA/NAME, {_OWN}", "net.kind": f", {_OWN}", "algo.name": f", {_OWN}"}
"""Key -> other values than those that can be listed."""


def help_of(field: Field, default: str = "") -> str:
    """Write the help of an option: its meaning, its values if they can be listed, and its default."""
    notes = []
    if field.kind != "bool" and field.values:
        notes.append(", ".join(field.values) + _MORE.get(field.key, ""))
    if default:
        notes.append(f"default: {default}")
    elif field.kind != "bool" and field.default not in ("", None, ()):
        spec = {"int": ",", "float": "g"}.get(field.kind) if field.metavar != "PORT" else ""
        notes.append(f"default: {format(field.default, spec) if spec else _shown(field)}")
    return f"{field.doc[:1].upper()}{field.doc[1:]}" + (f" ({'; '.join(notes)})." if notes else ".")


def _shown(field: Field) -> str:
    return str(field.default) if field.parse else show(field.default)


def switch(option: str, help_text: str, panel: str) -> object:
    """Declare an option without a value."""
    # The empty metavar keeps `<bool>` out of the help.
    return typer.Option(option, help=help_text, metavar="", rich_help_panel=panel)


def ask(option: str | list[str], metavar: str, help_text: str, panel: str | None = None, **more: Any) -> Any:
    """Declare an option with a value."""
    spellings = [option] if isinstance(option, str) else option
    return typer.Option(*spellings, metavar=metavar, help=help_text, rich_help_panel=panel, **more)


def argument(metavar: str, help_text: str, offered: Callable[..., object] = completion.run_names) -> object:
    """Declare a positional argument."""
    return typer.Argument(metavar=metavar, help=help_text, show_default=False, autocompletion=offered)


Json = Annotated[bool, switch("--json", "Print JSON on stdout, one object per line.", OUTPUT_PANEL)]
Full = Annotated[bool, switch("--full", "With --dry-run: show every value and what it means.", OUTPUT_PANEL)]
Quiet = Annotated[bool, switch("--quiet", "Show no progress; warnings and the result only.", OUTPUT_PANEL)]
DryRun = Annotated[bool, switch("--dry-run", "Show what would be done, without doing it.", OUTPUT_PANEL)]
Sets = Annotated[
    list[str] | None,
    ask(
        "--set",
        "KEY=VALUE",
        "Set any configuration key, such as algo.gamma=0.995 (repeatable).",
        CONFIG_PANEL,
        autocompletion=completion.settings,
    ),
]
ConfigFile = Annotated[
    Path | None,
    ask("--config", "FILE", "Start from a configuration file, or from the run.toml of a run folder.", CONFIG_PANEL),
]
Preset = Annotated[
    str | None,
    ask(
        "--preset",
        "NAME",
        f"Start from a preset ({', '.join(presets.names())}).",
        CONFIG_PANEL,
        autocompletion=completion.preset_names,
    ),
]
RunArgument = Annotated[Path, argument("RUN", "A run: its name below runs/, or the path of its folder.")]


@dataclass(frozen=True)
class Start:
    """What the configuration of a new run starts from."""

    preset: Preset = None
    config: ConfigFile = None
    sets: Sets = None

    def load(self, typed: Typed) -> Loaded:
        """Load the configuration, with the typed values."""
        from hmx.registry.load import load

        return load(preset=self.preset, file=self.config, sets=self.sets or (), flags=typed)

    def bound(self, typed: Typed) -> Loaded:
        """Load the configuration with the SHA-256 of every file of the user."""
        from hmx.registry.load import bind

        return bind(self.load(typed))


@dataclass(frozen=True)
class Execution:
    """How a job that may take long is executed."""

    dry_run: DryRun = False
    quiet: Quiet = False


def with_devices(typed: Typed, hosts: Hosts) -> Typed:
    """Return the typed configuration, with all devices for several processes; refuse contradictions."""
    if not hosts.distributed:
        for flag, field in fields_of(Hosts).items():
            if (value := getattr(hosts, field.name)) != field.default:
                raise HmxError(f"{flag} requires --distributed", f"--distributed {flag} {show(value)}")
        return typed
    devices = typed.get("run.devices")
    if devices not in (None, "all", "0"):
        message = f"--devices {devices} cannot be combined with --distributed, which uses all devices"
        raise HmxError(message, "leave --devices out")
    return {**typed, "run.devices": "all"}
