"""`hmx runs push` and `pull`: runs on the Hugging Face Hub; the extra `hub` is needed only to reach it."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from hmx.config import codec
from hmx.config.extras import needed
from hmx.config.fields import replace as with_values
from hmx.config.fields import values_of
from hmx.config.files import open_plain
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, one_line
from hmx.records import checkpoints, frozen, meta
from hmx.records.atomic import write_text, writing
from hmx.records.layout import find_run
from hmx.records.lock import check_free
from hmx.records.meta import Meta
from hmx.records.paths import (
    CHECKPOINTS,
    CONFIG,
    DEFAULT_ROOT,
    EVALUATION,
    META,
    METRICS,
    REFERENCE,
    REPORTS,
    RunPaths,
    is_folder_name,
)
from hmx.records.plain import JsonResult
from hmx.runs.restoring import choose

CARD = "README.md"
PATTERNS = (CARD, CONFIG, META, METRICS, f"{REPORTS}/{EVALUATION}", REFERENCE, f"{CHECKPOINTS}/**")
"""The files of a run on the Hub."""

_COPIED = (METRICS, f"{REPORTS}/{EVALUATION}", REFERENCE)  # as they are, where there are any
_COMMITTED = "commit_success.txt"
_MAY_BE_PATHS = ("run.init_from", "env.id", "net.kind", "algo.name", "ppo.ref")
_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True, kw_only=True)
class HubResult(JsonResult):
    """A run that was written for the Hub, sent to it or fetched from it."""

    repo: str
    folder: Path  # of the run, or of the files that would be sent
    url: str = ""  # where the files were sent to; empty if they were not
    files: tuple[str, ...]
    size: int  # bytes


def push(
    run: str | Path, repo: str, card: str, *, to: Path | None = None, private: bool = False, root: str = DEFAULT_ROOT
) -> HubResult:
    """Send the newest intact checkpoint, metrics, evaluation and configuration of a run to a model of the Hub.

    Command lines, the platform, folders of this machine and messages of failures are left out.

    Args:
        run: name or path.
        repo: `OWNER/NAME`; the model is made if it does not exist.
        card: text of its README.md.
        to: a new folder for the files; nothing is then sent.
        private: whether a new model is private.
        root: runs folder, for names.

    Raises:
        HmxError: a wrong name, no login, a path of this machine in the configuration, or a folder that exists (exit
            code 2); no such run, no intact checkpoint, or no such model (3); the Hub cannot be reached (1).
    """
    _check_name(repo)
    paths = find_run(run, root)
    check_free(paths)
    if to is not None:
        if to.exists():
            raise HmxError(f"cannot write {to}: it already exists", "name a new folder with --to")
        with writing("the files", to):
            return _written(paths, repo, card, to)
    with needed("hub", "hmx runs push"):
        from huggingface_hub import HfApi, get_token
    if get_token() is None:
        message = f"cannot push to {repo}: not logged in to the Hugging Face Hub"
        raise HmxError(message, "hf auth login, or set HF_TOKEN; --to FOLDER only writes the files")
    with tempfile.TemporaryDirectory(prefix="hmx-push-") as place:
        done = _written(paths, repo, card, Path(place, "run"))
        with _reaching(f"push to {repo}", repo):
            api = HfApi(library_name="hmx")
            api.create_repo(repo, repo_type="model", private=private or None, exist_ok=True)
            api.upload_folder(
                repo_id=repo, folder_path=done.folder, commit_message=f"Push {paths.name} with hmx",
                delete_patterns=[f"{CHECKPOINTS}/*"],
            )  # fmt: skip
    return replace(done, folder=paths.folder, url=f"https://huggingface.co/{repo}")


def pull(repo: str, folder: Path | None = None, revision: str | None = None) -> HubResult:
    """Fetch a run from the Hub into a new folder, by default `runs/NAME`. It is foreign: nothing in it is run.

    Raises:
        HmxError: a wrong name, or a folder that exists (exit code 2); no such model, or one without a run (3); the Hub
            cannot be reached (1).
    """
    _check_name(repo)
    place = folder or Path(DEFAULT_ROOT) / repo.partition("/")[2]
    if place.exists() or not is_folder_name(place.name):
        why = "it already exists" if place.exists() else "not the name of a run"
        raise HmxError(
            f"cannot write {place}: {why}", f"name a new folder: hmx runs pull {shlex.quote(repo)} runs/NAME"
        )
    with needed("hub", "hmx runs pull"):
        from huggingface_hub import snapshot_download
    with writing("the run", place):
        place.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that the last step is a rename: there is a whole run or none.
        with tempfile.TemporaryDirectory(prefix=".hmx-pull-", dir=place.parent) as temporary:
            fetched = Path(temporary, place.name)
            with _reaching(f"pull {repo}", repo):
                snapshot_download(repo, local_dir=fetched, allow_patterns=[*PATTERNS], revision=revision)
            shutil.rmtree(fetched / ".cache", ignore_errors=True)
            if not RunPaths(fetched.parent, fetched.name).config.is_file():
                hint = f"look at https://huggingface.co/{repo}; `hmx runs push` makes such models"
                raise HmxError(f"{repo} is not a run of hmx: it has no {CONFIG}", hint, ExitCode.ARTEFACT)
            fetched.rename(place)
    return _result(repo, place)


def _check_name(repo: str) -> None:
    if not _REPO.fullmatch(repo):
        raise HmxError(f"{quoted(repo) or repr(repo)} is not the name of a model", "OWNER/NAME, such as me/agent")


def _written(paths: RunPaths, repo: str, card: str, folder: Path) -> HubResult:
    """Write the files of a run for the Hub to a new folder."""
    cfg = frozen.read_config(paths)
    values = values_of(cfg)
    for key in _MAY_BE_PATHS:
        if str(values[key]).startswith(("/", "~")):
            message = f"cannot publish {paths.name}: its {key} is a path of this machine, {quoted(str(values[key]))}"
            raise HmxError(message, f"train with a relative path; hmx export {paths.argument} writes the policy alone")
    chosen, known = choose(paths), frozen.known_meta(paths)
    cfg = with_values(cfg, {"run.root": DEFAULT_ROOT})
    text = meta.with_history(codec.to_toml(cfg), known.resumes if known is not None else ())
    digest = codec.digest(cfg)
    copied = RunPaths(folder.parent, folder.name)
    copied.checkpoint(chosen.manifest.update).mkdir(parents=True)
    for name in _COPIED:
        if (paths.folder / name).exists():
            _copy(paths.folder / name, folder / name)
    target = copied.checkpoint(chosen.manifest.update)
    for file in chosen.manifest.files:
        if (name := PurePosixPath(file.path).name) == _COMMITTED:
            write_text(target / file.path, "")  # that of Orbax names the folder
        elif name not in (CONFIG, META):
            _copy(chosen.path / file.path, target / file.path)
    for place, found in ((copied.folder, known), (target, meta.find(chosen.path / META))):
        write_text(place / CONFIG, text)
        if found is not None:
            meta.write(place / META, _public(found, text, digest))
    info = {name: getattr(chosen.manifest, name) for name in checkpoints.CheckpointInfo.__dataclass_fields__}
    kept = checkpoints.CheckpointInfo(**{**info, "config_digest": digest})
    checkpoints.write_manifest(target, chosen.manifest.update, chosen.manifest.leaves, kept)
    write_text(folder / CARD, card)
    return _result(repo, folder)


def _public(known: Meta, config: str, digest: str) -> Meta:
    """Return the meta data without command lines, messages and facts about the machine's folders and system."""
    resumes = tuple(replace(one, command=(), damaged={}, notes=()) for one in known.resumes)
    own = {key: value for key, value in known.environment.items() if key != "path"}
    return replace(
        known, command=(), platform="", message="", hint="", resumes=resumes, environment=own,
        config_sha256=meta.sha256(config), config_digest=digest,
    )  # fmt: skip


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(open_plain(source), "rb") as read, target.open("xb") as written:
        shutil.copyfileobj(read, written)


def _result(repo: str, folder: Path) -> HubResult:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = tuple(path.relative_to(folder).as_posix() for path in files)
    return HubResult(repo=repo, folder=folder, files=names, size=sum(path.stat().st_size for path in files))


@contextlib.contextmanager
def _reaching(what: str, repo: str) -> Iterator[None]:
    """Turn an error of the Hub's package into an HmxError."""
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    login = f"hf auth login with a token that may use {shlex.quote(repo)}"
    try:
        yield
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        kind = "revision" if isinstance(error, RevisionNotFoundError) else "model"
        hint = f"look at https://huggingface.co/{repo}; a private model needs: {login}"
        raise HmxError(f"cannot {what}: there is no such {kind}, or it is private", hint, ExitCode.ARTEFACT) from None
    except Exception as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
        if status in (401, 403):
            raise HmxError(f"cannot {what}: the Hugging Face Hub refuses it ({status})", login) from None
        why = one_line(error, 200)
        hint = "check the network, then try again"
        message = f"cannot {what}: the Hugging Face Hub cannot be reached: {quoted(why, 200)}"
        raise HmxError(message, hint, ExitCode.UNEXPECTED) from error
