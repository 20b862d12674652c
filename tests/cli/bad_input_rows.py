"""The table of bad input: what is typed, the exit code, and what the message must say.

`{run}` stands for the folder of a finished run of the corridor. Every row of `FILES` is the content of a configuration
file, given to `hmx train --config`.
"""

from __future__ import annotations

from importlib.util import find_spec

from bad_input_parts import ARTEFACT, BIG, DIGITS, SET, USAGE, Row, rows
from bad_input_reports import COMPARE, GRAD_REPORT, REVIEW, SCORE_BUFFER
from bad_input_studies import STUDY


def _absent(extra: str, package: str, otherwise: list[str]) -> list[str]:
    """What is said of an unknown name of an extra: that the extra is missing, unless it is installed."""
    return otherwise if find_spec(package) else [f"not installed: {package}", f"[{extra}]'"]


NO_GYMNAX = _absent("gymnax", "gymnax", ["gymnax has no environment Cart"])
NO_BRAX = _absent("brax", "brax", ["Brax has no environment inverted", "brax/inverted_pendulum"])
NO_SUITE = _absent("playground", "mujoco_playground", ["no environment WalkerWlak", "playground/WalkerWalk"])
NO_CRAFT = _absent("craftax", "craftax", ["craftax has no environment Craftax-v1", "craftax/Craftax-Symbolic-v1"])
NO_RULES = _absent("xminigrid", "xminigrid", ["needs rulesets that xminigrid downloads"])
NO_TEAM = _absent("jumanji", "jumanji", ["jumanji/Cleaner-v0 has several agents"])
NO_ROBOTS = _absent("playground", "mujoco_playground", ["robots that Playground downloads from GitHub"])


ROOT: list[Row] = [
    (["trian"], USAGE, ["error: no such command: trian\n\n", "hint: did you mean hmx train?"]),
    (["xyzzy"], USAGE, ["error: no such command: xyzzy\n\n", "hint: hmx --help lists all commands"]),
    (["--versoin"], USAGE, ["error: no such option: --versoin\n\n", "hint: did you mean --version?"]),
    (["\x1b[2Jtrain"], USAGE, ["\\x1b[2Jtrain", "hmx --help"]),
]

_OF_TWO = ["--distributed", "--num-processes", "2", "--coordinator", "a:1"]

TRAIN = rows(
    "train",
    (["surplus"], USAGE, ["unexpected extra argument", "hmx train --help"]),
    (["--sedd", "1"], USAGE, ["error: no such option: --sedd\n\n", "hint: did you mean --seed?"]),
    (["--xyzzy"], USAGE, ["error: no such option: --xyzzy\n\n", "hint: hmx train --help lists all options"]),
    (["--name"], USAGE, ["option '--name' requires an argument\n\n", "hmx train --help"]),
    (["--json=1"], USAGE, ["'--json' does not take a value"]),
    (["--env", "hackmatirx"], USAGE, ["env.id = hackmatirx (--env)", "--env hackmatrix"]),
    (["--env", "smax/4m"], USAGE, ["env.id = smax/4m (--env)", "3m, 2s3z, 25m", "--env smax/3m"]),
    (["--env", "smax/8m", SET, "env.num_agents=3"], USAGE, ["smax/8m has 8 agents", "--set env.num_agents=8"]),
    (
        ["--env", "smax/3m", SET, "env.world_state=true"],
        USAGE,
        ["needs a separate value network", "net.shared_torso=false"],
    ),
    ([SET, "env.world_state=true", SET, "net.shared_torso=false"], USAGE, ["only SMAX has a world state"]),
    (["--preset", "smax-vdn", SET, "env.world_state=true"], USAGE, ["env.world_state = true", "dqn does not read it"]),
    (["--env", "brax"], USAGE, ["env.id = brax", "no such environment", "brax/NAME"]),
    (["--env", "gymnax/Cart"], USAGE, NO_GYMNAX),
    (["--env", "brax/inverted", "--dry-run"], USAGE, NO_BRAX),
    (["--env", "craftax/Craftax-v1"], USAGE, NO_CRAFT),
    (["--env", "xminigrid/XLand-MiniGrid-R1-9x9"], USAGE, NO_RULES),
    (["--env", "jumanji/Cleaner-v0"], USAGE, NO_TEAM),
    (["--env", "brax/ant@warp"], USAGE, ["Brax has no backend warp", "generalized, mjx, positional, spring"]),
    (["--env", "playground/WalkerWlak"], USAGE, NO_SUITE),
    (["--env", "playground/Go1JoystickFlatTerrain"], USAGE, NO_ROBOTS),
    (["--env", "playground/WalkerWalk", SET, "env.num_agents=2"], USAGE, ["has one agent", "env.num_agents=1"]),
    (["--seed", "-1"], USAGE, ["run.seed = -1 (--seed)", "--seed 0"]),
    (["--seed", "1.5"], USAGE, ["run.seed = 1.5", "must be a whole number"]),
    (["--seed", str(2**31)], USAGE, ["run.seed = 2147483648", "--seed 2147483647"]),
    (["--devices", "two"], USAGE, ["run.devices = two", "must be a whole number or all", "--devices 1"]),
    (["--algo", "dqn", "--env", "pendulum"], USAGE, ["its actions are continuous", "hint: --algo ppo"]),
    (["--seeds", "0"], USAGE, ["run.num_seeds", "0", "--seeds 1"]),
    (["--steps", "1e30"], USAGE, ["run.total_steps = 1e30", "at most 9,007,199,254,740,991"]),
    (["--num-envs", DIGITS], USAGE, ["env.num_envs = 9999", "...", "--num-envs 512"]),
    (["--lr", "fast"], USAGE, ["algo.learning_rate = fast", "--lr"]),
    (["--lr", "1e999"], USAGE, ["algo.learning_rate = 1e999", "must be a number"]),
    (["--lr", "-1"], USAGE, ["algo.learning_rate = -1.0", "must be 0 or more"]),
    (["--process-id", "1"], USAGE, ["--process-id requires --distributed", "--distributed --process-id 1"]),
    (["--coordinator", "a:1"], USAGE, ["--coordinator requires --distributed", "--distributed --coordinator a:1"]),
    (
        ["--distributed", "--devices", "4"],
        USAGE,
        ["--devices 4 cannot be combined with", "leave --devices out"],
    ),
    (["--distributed", "--join-timeout", "0"], USAGE, ["--join-timeout 0: must be above 0", "--join-timeout 300"]),
    (
        ["--distributed", "--num-processes", "two"],
        USAGE,
        ["--num-processes two: must be a whole number"],
    ),
    (["--distributed"], USAGE, ["JAX detects no cluster here", "--coordinator HOST:PORT --num-processes N"]),
    (["--distributed", "--num-processes", "2"], USAGE, ["--coordinator and --process-id must be given"]),
    ([*_OF_TWO, "--process-id", "2"], USAGE, ["--process-id 2", "must be 0 to 1"]),
    ([*_OF_TWO, "--process-id", "0", "--coordinator", "here"], USAGE, ["--coordinator here: must be HOST:PORT"]),
    (["--wandb", "sometimes"], USAGE, ["run.wandb = sometimes", "disabled, offline, online"]),
    (["--name", "../escape"], USAGE, ["run.name = ../escape", "--name escape"]),
    (["--name", "a b"], USAGE, ["run.name = a b", "--name a-b"]),
    (["--name", "."], USAGE, ["run.name = .", "--name my-run"]),
    (["--name", "n" * 300], USAGE, ["run.name = nnn", "1 to 100 letters"]),
    (["--name", "\x1b[31mred"], USAGE, ["run.name = \\x1b[31mred", "--name 31mred"]),
    (["--name", "a\n\nhint: rm -rf /"], USAGE, ["run.name = a\\n\\nhint: rm -rf /"]),
    (["--preset", "qick"], USAGE, ["there is no preset qick", "--preset quick"]),
    (["--preset", ""], USAGE, ['there is no preset ""', "presets are default"]),
    (["--preset", "../../etc/passwd"], USAGE, ["there is no preset ../../etc/passwd"]),
    ([SET, "ppo.advantage_when=minibatch"], USAGE, ["ppo.value_forward", "the last observation needs its own value"]),
    ([SET, "algo.grad_clip=per_network"], USAGE, ["share layers", "net.shared_torso=false"]),
    ([SET, "ppo.obs_norm=network"], USAGE, ["words of bits", "env.obs=flat"]),
    ([SET, "starts.share=0.5", "--env", "corridor"], USAGE, ["corridor has no later stages", "starts.share=0"]),
    ([SET, "starts.share=0.5", "--algo", "dqn"], USAGE, ["starts.share = 0.5", "dqn does not read it"]),
    (["--config", "missing.toml"], USAGE, ["no such configuration file: missing.toml"]),
    (["--config", "."], USAGE, ["no such configuration file: run.toml"]),
    (["--config", "/dev/zero"], USAGE, ["cannot read /dev/zero", "more than 1,048,576 bytes"]),
    (["--config", "a\0b"], USAGE, ["embedded null"]),
    ([SET, ""], USAGE, ['--set "": expected section.key=value']),
    ([SET, "algo.gamma"], USAGE, ["expected section.key=value", "--set algo.gamma=0.99"]),
    ([SET, "algo=1"], USAGE, ["algo = 1", "unknown key"]),
    ([SET, "a.b.c=1"], USAGE, ["a.b.c = 1", "unknown section a", "sections are run, env"]),
    ([SET, "algo.gama=0.9"], USAGE, ["algo.gama = 0.9", "did you mean algo.gamma=0.9?"]),
    ([SET, "agent.gamma=0.9"], USAGE, ["unknown section agent", "algo.gamma=0.9"]),
    ([SET, "run.wandb_project=\ud800"], USAGE, ["run.wandb_project = \\ud800", "not UTF-8"]),
    ([SET, "algo.gamma=1.0001"], USAGE, ["algo.gamma = 1.0001", "from 0 to 1"]),
    ([SET, "algo.my.size=3"], USAGE, ["algo.my.size (--set)", "ppo declares no options of its own"]),
    (["--algo", "./none.py", "--env", "corridor"], USAGE, ["cannot load algorithm ./none.py", "there is no file"]),
    (
        ["--net", "nosuch.net:make", "--env", "corridor"],
        USAGE,
        ["load network", "no module nosuch.net"],
    ),
    (["--algo", "dnq"], USAGE, ["algo.name = dnq", "is not one of ppo, gumbel, dqn", "--algo dqn"]),
    (["--algo", "dqn", SET, "ppo.clip_eps=0.3"], USAGE, ["ppo.clip_eps = 0.3", "dqn does not read it"]),
    (["--algo", "dqn", SET, "net.rnn=gru"], USAGE, ["net.rnn = gru", "dqn does not read it", "net.rnn=none"]),
    (["--save-buffer"], USAGE, ["replay.save = true (--save-buffer)", "ppo does not read it"]),
    (["--preset", "lake", "--num-envs", "24"], USAGE, ["replay.capacity = 32768", "not a multiple of 24 environments"]),
    (["--preset", "lake", SET, "replay.mixing=additive"], USAGE, ["nothing is scored", "score.every=8"]),
    (["--preset", "lake", SET, "score.every=1", SET, "score.actions=topk"], USAGE, ["score.actions = topk", "softmax"]),
    (["--preset", "lake", SET, "replay.capacity=1073741824"], USAGE, ["not enough memory: at least", "free"]),
    ([SET, "ppo.num_minibatches=7"], USAGE, ["ppo.num_minibatches = 7", "try ppo.num_minibatches=8"]),
    ([SET, "net.hidden="], USAGE, ["net.hidden", "at least one value"]),
    ([SET, "net.kind=cells", "--env", "corridor"], USAGE, ["net.kind = cells", "env.id = corridor", "net.kind=mlp"]),
    ([SET, "env.num_agents=3", "--env", "hackmatrix"], USAGE, ["env.num_agents = 3", "hackmatrix has one agent"]),
    ([SET, "run.root="], USAGE, ["run.root", "must name a folder"]),
    ([SET, "reward.kils=1"], USAGE, ["reward.kils = 1", "reward.kills"]),
    ([SET, "ppo.value_target=two_hot", SET, "ppo.clip_vf_eps=0.2"], USAGE, ["cannot be clipped"]),
    (["--preset", "tiny", SET, "run.root=/dev/null/x"], USAGE, ["cannot write the run folder /dev/null/x"]),
)

RESUME = rows(
    "resume",
    ([], USAGE, ["missing argument 'RUN'\n\n", "hmx resume --help"]),
    (["a", "b"], USAGE, ["unexpected extra argument"]),
    (["\ud800"], USAGE, ["surrogates"]),
    ([""], ARTEFACT, ["is not a run folder"]),
    (["../.."], ARTEFACT, ["../.. is not a run folder"]),
    (["~nobody-of-that-name/x"], ARTEFACT, ["there is no run ~nobody-of-that-name/x"]),
    (["n" * 5000], ARTEFACT, ["cannot read nnn", "too long"]),
    (["nosuch", "--steps", "x"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--steps"], USAGE, ["'--steps' requires an argument"]),
    (["{run}", "--steps", "0"], USAGE, ["to 0 steps: it has trained", "to extend it: hmx resume"]),
    (["{run}", "--distributed", "--num-processes", "2"], USAGE, ["--coordinator and --process-id must be given"]),
    (["{run}", SET, "env.num_envs=7"], USAGE, ["env.num_envs: 16 cannot become 7", "hmx train --config"]),
    (["{run}", "--num-envs", "7", "--lr", "1e-4"], USAGE, ["env.num_envs: 16 cannot become 7", "--init-from"]),
)

FORK = rows(
    "fork",
    ([], USAGE, ["missing argument 'RUN'"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--at", "x"], USAGE, ["--at x: must be a whole number"]),
    (["{run}", "--at", "9999"], ARTEFACT, ["there is no checkpoint", "checkpoints there:"]),
    (["{run}", "--name", "a b"], USAGE, ["'a b' cannot be the name of a run", "--name a-b"]),
    (["{run}", "--num-envs", "7"], USAGE, ["env.num_envs: 16 cannot become 7", "--init-from"]),
    (["{run}", SET, "net.hidden=9"], USAGE, ["cannot become 9", "hmx train --config"]),
)

EVALUATE = rows(
    "evaluate",
    ([], USAGE, ["cannot evaluate: no run given", "hmx evaluate --policy random"]),
    (["--policy", "random", SET, "env.nosuch=1"], USAGE, ["env.nosuch"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["/dev/null"], ARTEFACT, ["there is no run /dev/null"]),
    (["{run}", "--polciy", "x"], USAGE, ["no such option: --polciy", "did you mean --policy?"]),
    (["{run}", "--policy", "lucky"], USAGE, ["lucky", "random, sampled, greedy"]),
    (["{run}", SET, "env.num_envs=7"], USAGE, ["env.num_envs: 16 cannot become 7"]),
    (["{run}", "--episodes", "0"], USAGE, ["--episodes 0: must be 1 or more", "--episodes 1"]),
    (["{run}", "--episodes", "1000000000000"], USAGE, ["1,000,000,000,000 episodes", "--episodes 10000000"]),
    (["{run}", "--seed", "-1"], USAGE, ["--seed -1: must be from 0 to 2,147,483,647"]),
    (["{run}", "--seed", str(2**70)], USAGE, ["--seed", "must be at most 9,007,199,254,740,991"]),
    (["{run}", "--checkpoint", "x"], USAGE, ["--checkpoint", "must be a whole number"]),
    (["{run}", "--search", "0"], USAGE, ["--search 0: must be from 1 to 1,024", "--search 1"]),
    (["{run}", "--policy", "search"], USAGE, ["number of simulations missing", "--search 32"]),
)

WATCH = rows(
    "watch",
    ([], USAGE, ["no run given", "--random"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--env", "corridor"], USAGE, ["--random"]),
    (["--random", "--episodes", "0"], USAGE, ["--episodes 0: must be 1 or more"]),
    (["--random", "--delay", "nan"], USAGE, ["--delay nan: must be a number"]),
    (["--delay", "-1"], USAGE, ["--delay -1: ", "hint: --delay 0"]),
    (["--random", "--search", "8"], USAGE, ["cannot search: random play", "hmx watch RUN --search 32"]),
    (["--random", "--scenario", "gone.json"], ARTEFACT, ["cannot read gone.json: no such file"]),
    (["--random", "--scenario", "/dev/zero"], ARTEFACT, ["cannot read /dev/zero", "more than 1,048,576 bytes"]),
    (["--random", "--scenario", "/dev/null"], USAGE, ["/dev/null is not JSON", "line 1"]),
)

PLAY = rows(
    "play",
    ([], USAGE, ["standard input is not a terminal"]),
    (["x"], USAGE, ["unexpected extra argument"]),
    (["--seed", "-1"], USAGE, ["--seed -1: must be from 0 to 2,147,483,647"]),
)

CHECK_ENV = rows(
    "check-env",
    ([], USAGE, ["missing argument 'ENV'"]),
    (["coridor"], USAGE, ["unknown environment: coridor", "did you mean corridor?"]),
    (["corridor", "--steps", "1"], USAGE, ["--steps 1: must be from 8 to 100,000"]),
    (["corridor", "--tolerance", "nan"], USAGE, ["--tolerance nan: must be a number"]),
    (["corridor", SET, "env.slp=1"], USAGE, ["env.slp = 1 (--set): unknown key", "--set env.slip=1"]),
    (["corridor", "--html", "no/such/folder/a.html"], USAGE, ["cannot write the report no/such/folder"]),
)

BENCH = rows(
    "bench",
    (["--env", "coridor"], USAGE, ["no such environment", "--env corridor"]),
    (["--env", "./nosuch.py"], USAGE, ["nosuch.py"]),
    (["--seconds", "0"], USAGE, ["--seconds 0: must be from 1 to 86,400", "--seconds 60"]),
    (
        ["--env", "corridor", "--num-envs", "1000000000000", "--steps", "100000G"],
        USAGE,
        ["not enough memory: at least", "--num-envs"],
    ),
    (["--devices", "3"], USAGE, ["run.devices = 3: only 1 available"]),
)

COMPUTE_CONFIG = rows(
    "compute-config",
    (["a", "b"], USAGE, ["unexpected extra argument"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["--num-agnets", "3"], USAGE, ["no such option: --num-agnets", "did you mean --num-agents?"]),
    (["--num-agents", "0"], USAGE, ["E_NOT_POSITIVE", "--num-agents 1"]),
    (["--num-agents", BIG], USAGE, ["E_TOO_LARGE", "2^53 - 1"]),
    (["--preset", "metta", "--batch-size", "1"], USAGE, ["2 problems", "E_BATCH_LT_HORIZON", "--batch-size 524288"]),
    (["--preset", "metta", "--minibatch-size", "1048576"], USAGE, ["E_MINIBATCH_GT_BATCH", "--batch-size 1048576"]),
    (
        ["--preset", "metta", "--bptt-horizon", "63"],
        USAGE,
        ["E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", "--bptt-horizon 64"],
    ),
    (["--preset", "metta", "--bptt-horizon", "1"], USAGE, ["E_HORIZON_TOO_SHORT", "--bptt-horizon 2"]),
    (["--preset", "metta", "--num-workers", "3"], USAGE, ["E_WORKERS_NOT_MULTIPLE_OF_ASYNC", "--num-workers 4"]),
    (["--sweep", "foo=1"], USAGE, ["cannot sweep foo: no such input", "num_agents"]),
    (["--sweep", "num_agents="], USAGE, ["no values"]),
    (["--config", "missing.toml"], USAGE, ["no such configuration file: missing.toml"]),
    (["--preset", "metta", "--num-envs", "64"], USAGE, ["cannot combine --num-envs of hmx train with", "--num-agents"]),
    (["--num-envs", "0"], USAGE, ["env.num_envs = 0", "--set env.num_envs=512"]),
    (["--num-agents", "24", "--num-envs", "64"], USAGE, ["--num-agents, of the Metta", "--num-envs, of hmx train"]),
    (["--sweep", "num_agents=3", SET, "algo.gamma=0.9"], USAGE, ["--num-agents, of", "--set algo.gamma=0.9, of"]),
    (["nowhere", "--config", "x.toml"], USAGE, ["cannot combine a run with --config"]),
    (["--sweep", "num_agents=3", "--num-agents", "4"], USAGE, ["also given"]),
    (["--sps", "fast"], USAGE, ["--sps fast", "above 0"]),
    (["--gpu-mem", "80"], USAGE, ["80GB or 80GiB"]),
    (["--parameters", "0"], USAGE, ["--parameters 0", "1 or more"]),
    (["--parameters", "5", "--preset", "tiny"], USAGE, ["the network of this configuration is known"]),
    (["--sweep", "num_agents=1", "--full"], USAGE, ["cannot combine --sweep with --full"]),
    (["--csv", "-", "--json"], USAGE, ["cannot print --json and --csv -"]),
    (["--forward-target", "5", "--forward-pass-minibatch-target-size", "6"], USAGE, ["the same input"]),
)

RUNS = rows(
    "runs",
    (["verify", "{run}", "--jsn"], USAGE, ["did you mean --json?"]),
    (["lst"], USAGE, ["no such command: lst", "did you mean hmx runs list?"]),
    (["list", "x"], USAGE, ["unexpected extra argument"]),
    (["list", "--sort", "speed"], USAGE, ["--sort speed", "name, environment, algorithm, state, steps"]),
    (["show", "nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["tail", "{run}", "--lines", "-1"], USAGE, ["--lines"]),
    (["rename", "{run}", "../x"], USAGE, ["cannot be the name of a run", "hmx runs rename", " x"]),
    (["rename", "{run}", "corridor"], USAGE, ["already exists", "choose another name"]),
    (["rm"], USAGE, ["missing argument 'RUN'"]),
    (["rm", "{run}"], USAGE, ["no terminal to answer", "--yes"]),
    (["rm", "{run}/run.toml", "--yes"], USAGE, ["it is a file of a run", "give the run"]),
    (["rm", "{run}", "nosuch", "--yes"], ARTEFACT, ["there is no run nosuch"]),
    (["export", "{run}", "--to", "xml"], USAGE, ["--to xml", "csv, tensorboard"]),
    (["export", "{run}", "--output", "no/such/file.csv"], USAGE, ["the folder does not exist", "mkdir -p no/such"]),
    (["export", "{run}", "--output", "/"], USAGE, ["it is a folder", "--output /metrics.csv"]),
    (["export", "{run}", "--output", "-", "--to", "tensorboard"], USAGE, ["only CSV can be printed"]),
    (["export", "{run}", "--output", "-", "--json"], USAGE, ["at the same time"]),
    (["export", "{run}", "--output", "{run}/run.toml"], USAGE, ["the run needs that file", "--output "]),
    (["verify", "/"], ARTEFACT, ["/ is not a run folder"]),
    (["sync", "{run}", "--project"], USAGE, ["'--project' requires an argument"]),
)

EXPORT = rows(
    "export",
    ([], USAGE, ["missing argument 'RUN'"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--to", "pickle"], USAGE, ["--to pickle", "safetensors, stablehlo, onnx"]),
    (["{run}", "--output", "no/such/file"], USAGE, ["the folder does not exist", "mkdir -p no/such"]),
    (["{run}", "--output", "{run}/run.toml"], USAGE, ["the run needs that file", "--output "]),
    (["{run}", "--agent", "3"], USAGE, ["there is no agent 3", "the only agent is 0"]),
    (["{run}", "--checkpoint", "-1"], USAGE, ["--checkpoint -1", "0 or more"]),
)

DOCTOR = rows(
    "doctor",
    ([], USAGE, ["missing argument 'RUN'"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--fail-on", "xx"], USAGE, ["cannot fail on xx: no such rule", "entropy-collapsed"]),
    (["{run}", "--fail-on", "first-ratios"], USAGE, ["no such rule", "did you mean first-ratio?"]),
    (["{run}", "--fail-on", ""], USAGE, ["no such rule", "the rules are constant-rewards"]),
    (["{run}", "--csv", "-", "--json"], USAGE, ["cannot print --json and --csv -"]),
)

BOARD = rows(
    "board",
    (["--port", "70000"], USAGE, ["--port"]),
    (["surplus"], USAGE, ["unexpected extra argument"]),
)

PRESETS = rows("presets", (["tinny"], USAGE, ["there is no preset tinny", "did you mean", "tiny"]))

ENVS = rows(
    "envs",
    (["corridr"], USAGE, ["unknown environment: corridr", "did you mean corridor?"]),
    (["./none.py"], USAGE, ["there is no file", "none.py"]),
    (["nosuch.module:make"], USAGE, ["there is no module", "nosuch.module"]),
    (["corridor", "--set", "env.my.size=3"], USAGE, ["corridor declares no options of its own"]),
)
NEW_ENV = rows(
    "new-env",
    ([], USAGE, ["missing argument 'NAME'"]),
    (["3d"], USAGE, ["cannot name an environment", "letters, digits and underscores"]),
    (["class"], USAGE, ["a keyword of Python", "hmx new-env my_class"]),
    (["jax"], USAGE, ["a Python module of this name is installed", "hmx new-env my_jax"]),
)

COMMANDS: list[Row] = [
    *PRESETS, *ENVS, *NEW_ENV, *EXPORT, *BOARD, *DOCTOR,
    *ROOT, *TRAIN, *RESUME, *FORK, *EVALUATE, *WATCH, *PLAY, *COMPARE, *BENCH, *CHECK_ENV, *COMPUTE_CONFIG, *RUNS,
    *GRAD_REPORT, *REVIEW, *SCORE_BUFFER, *STUDY,
]  # fmt: skip

FILES: dict[str, tuple[str | bytes, list[str]]] = {
    "typo": ("[algo]\ngama = 0.9\n", ["algo.gama = 0.9 (mine.toml:2)", "in mine.toml:2, section [algo], set gamma"]),
    "no section": ("gamma = 0.9\n", ["gamma = 0.9 (mine.toml:1)", "algo.gamma=0.9"]),
    "open bracket": ("[algo\ngamma = 0.9\n", ["mine.toml:1: not valid TOML"]),
    "text for a number": ('[algo]\ngamma = "high"\n', ['algo.gamma = "high" (mine.toml:2)', "must be a number"]),
    "date for a number": ("[algo]\ngamma = 1979-05-27T07:32:00Z\n", ["algo.gamma = 1979-05-27 07:32", "number"]),
    "table for a number": ("[algo]\ngamma = {a = 1}\n", ["algo.gamma = {...}", "must be a number"]),
    "nested list": ("[net]\nhidden = [64, [32]]\n", ["net.hidden = 64,[...]", "list of whole numbers"]),
    "number for a section": ("algo = 3\n", ["algo = 3 (mine.toml:1)", "unknown key"]),
    "list of sections": ("[[algo]]\ngamma = 1\n", ["algo = [...]", "unknown key"]),
    "not a number": ("[algo]\ngamma = nan\n", ["algo.gamma = nan", "finite"]),
    "5,000 digits": (f"[env]\nnum_envs = {DIGITS}\n", ["mine.toml:2: not valid TOML", "4300 digits"]),
    "5,000 hex digits": (f"[env]\nnum_envs = 0x{'f' * 5000}\n", ["a number of 20,000 bits", "at most"]),
    "newer": ("schema = 99\n", ["mine.toml has schema 99", "newer hmx", "upgrade"]),
    "UTF-16": ("[algo]".encode("utf-16"), ["mine.toml is not a text file in UTF-8"]),
    "too long": ("#" * 2_000_000, ["cannot read mine.toml", "more than 1,048,576 bytes"]),
    "deep": ("x = " + "[" * 20_000, ["nested too deeply"]),
    "escape codes": ('"\\u001b[2J" = 1\n', ["\\x1b[2J = 1", "unknown key"]),
    "forged hint": ('[env]\nid = "x\\n\\nhint: rm -rf /"\n', ["env.id = x\\n\\nhint: rm -rf /"]),
    "text right to left": ('[env]\nid = "\\u202eabc"\n', ["env.id = \\u202eabc"]),
    "long text": ('[run]\nname = "' + "x" * 100_000 + '"\n', ["run.name = xxx", "...", "1 to 100 letters"]),
    "3,000 keys": ("".join(f"k{i} = 1\n" for i in range(3000)), ["3,000 problems", "k0 = 1", "and 2,980 more"]),
    "3,000 widths": (f"[net]\nhidden = {[-1] * 3000}\n", ["net.hidden = -1,-1", "...", "1 or more"]),
}
