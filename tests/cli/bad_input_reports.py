"""Bad input of the commands that report; see `bad_input_rows`."""

from __future__ import annotations

from bad_input_parts import ARTEFACT, USAGE, rows

GRAD_REPORT = rows(
    "grad-report",
    ([], USAGE, ["missing argument 'RUN'"]),
    (["nosuch"], ARTEFACT, ["nosuch"]),
    (["{run}", "--checkpiont", "3"], USAGE, ["no such option: --checkpiont", "did you mean --checkpoint?"]),
    (["{run}", "--checkpoint", "newest"], USAGE, ["--checkpoint newest", "whole number"]),
    (["{run}", "--groups", "0"], USAGE, ["--groups 0: must be 1 or more", "--groups 64"]),
    (["{run}", "--per-group", "1"], USAGE, ["--per-group 1: must be 2 or more", "--per-group 8"]),
    (["{run}", "--per-group", str(10**9)], USAGE, ["64 x 1,000,000,000 episodes", "--groups 64 --per-group 8"]),
    (["{run}", "--groups", "2"], USAGE, ["cannot fill 4 buckets with 2 groups", "--groups 64"]),
    (["{run}", "--buckets", "65"], USAGE, ["cannot fill 65 buckets with 64 groups", "--groups 1040"]),
    (["{run}", "--agent", "1"], USAGE, ["there is no agent 1", "the only agent is 0"]),
    (["{run}", "--by", "luck"], USAGE, ["--by luck", "reward_std, return, td, consequence, priority, age"]),
    (["{run}", "--by", "age"], USAGE, ["cannot rank by age without --replay", "add --replay"]),
    (["{run}", "--kl-coef", "-1"], USAGE, ["--kl-coef -1: must be 0 or more"]),
    (["{run}", "--checkpoint", str(10**9)], ARTEFACT, ["there is no checkpoint", "checkpoints there"]),
    (["{run}", "--checkpoint", "1", "--all-checkpoints"], USAGE, ["cannot use --checkpoint with --all-checkpoints"]),
    (["{run}", "--compare", "nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--groups", "4", "--html", "no/such/folder/a.html"], USAGE, ["cannot write the report no/such/folder"]),
    (["{run}", "--json", "--csv", "-"], USAGE, ["cannot print --json and --csv - at the same time"]),
    (["{run}", "--crossfit", "--per-group", "3"], USAGE, ["half of them has no variance", "--per-group 8"]),
    (["{run}", "--replay"], USAGE, ["ppo has no replay buffer", "--from-buffer FILE"]),
    (["{run}", "--replay", "--crossfit"], USAGE, ["cannot use --crossfit with --replay"]),
    (["{run}", "--replay", "--keys", "both"], USAGE, ["cannot use --keys with --replay", "drop --replay"]),
    (["{run}", "--replay", "--max-length", "9"], USAGE, ["cannot use --max-length with --replay"]),
    (["{run}", "--by", "priority"], USAGE, ["cannot rank by priority without --replay"]),
    (["{run}", "--from-buffer"], USAGE, ["'--from-buffer' requires an argument"]),
    (["{run}", "--from-buffer", "nosuch.npz"], ARTEFACT, ["nosuch.npz"]),
    (["{run}", "--from-buffer", "{run}"], ARTEFACT, ["a folder instead of a file"]),
)

CHECK = "--fail-if"

COMPARE = rows(
    "compare",
    ([], USAGE, ["expected at least two sides", "hmx compare runs/one runs/another"]),
    (["tiny"], USAGE, ["expected at least two sides", "hmx compare tiny runs/another"]),
    (["tiny", "nosuch"], ARTEFACT, ["no run, file or preset nosuch", "a side is a run"]),
    (["tiny", "metaa"], ARTEFACT, ["no run, file or preset metaa", "did you mean metta?"]),
    (["tiny", ""], USAGE, ["contains an empty path"]),
    (["tiny", "=metta"], USAGE, ["=metta: expected a name before the equals sign", "hmx compare ours=metta"]),
    (["x=tiny", "x=metta"], USAGE, ["two sides have the name x"]),
    (["B=tiny", "metta"], USAGE, ["B is the letter of side 2", "give side A another name"]),
    (["\x1b[2J=tiny", "metta"], USAGE, ["\\x1b[2J is not a valid name"]),
    (["tiny", "/dev/zero"], ARTEFACT, ["cannot read /dev/zero: neither a file nor a folder"]),
    (["tiny", "/proc/self/environ"], ARTEFACT, ["neither a metrics file nor a configuration", ".jsonl"]),
    (["{run}", "{run}", "--metric", "train/mean_episode_retrun"], USAGE, ["--metric train/mean_episode_return"]),
    (["tiny", "metta", "--last", "0"], USAGE, ["--last 0: expected a share or a number of steps", "--last 10%"]),
    (["tiny", "metta", "--last", "0.1"], USAGE, ["--last 0.1: expected a share", "--last 10%"]),
    (["tiny", "metta", "--threshold", "high"], USAGE, ["--threshold high: expected numbers"]),
    (["{run}", "{run}", "--threshold", "lake=1"], USAGE, ["--threshold lake", "such as --threshold corridor=..."]),
    (["{run}", "{run}", "--range", "lake=0:1"], USAGE, ["--range lake", "such as --range corridor=..."]),
    (["tiny", "metta", "--range", "corridor=1:1"], USAGE, ["--range corridor=1:1", "two different numbers"]),
    (["{run}", "{run}", "--range", "corridor=2:1"], USAGE, ["the better value last", "--range corridor=1:2"]),
    (["tiny", "metta", "--samples", "0"], USAGE, ["--samples 0: must be from 1 to 1,000,000", "--samples 1"]),
    (["{run}", "{run}", CHECK, "iqn(A) > 1"], USAGE, ["unknown figure iqn(A)", "did you mean iqm(A)?"]),
    (["tiny", "metta", CHECK, "(" * 999], USAGE, ["too many nested parentheses"]),
    (["tiny", "metta", CHECK, "1" * 2000], USAGE, ["longer than 1,000 characters"]),
    (["tiny", "metta", "--json", "--md", "-"], USAGE, ["cannot print --json and --md - at the same time"]),
    (["tiny", "metta", "--html", "no/such/folder/a.html"], USAGE, ["the report", "no/such/folder"]),
    (["tiny", "metta", "--md", "/"], USAGE, ["the report", "/"]),
    (["metta", "tiny", "--impl"], USAGE, ["network of side A: it is recurrent", "net.rnn = none"]),
)

REVIEW = rows(
    "review",
    ([], USAGE, ["missing argument 'GAME'"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["gone.json"], ARTEFACT, ["cannot read gone.json: no such file"]),
    (["/dev/null/x.json"], ARTEFACT, ["cannot read"]),
    (["{run}", "--screened", "1"], USAGE, ["--screened 1: must be from 2"]),
    (["{run}", "--agent", "nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "--decisions", "0"], USAGE, ["--decisions 0: must be from 1"]),
)

SCORE_BUFFER = rows(
    "score-buffer",
    ([], USAGE, ["missing argument 'PATH'"]),
    (["nosuch"], ARTEFACT, ["nosuch"]),
    (["nosuch.npz"], ARTEFACT, ["saved buffer nosuch.npz does not exist"]),
    (["/"], ARTEFACT, ["/ is not a run folder"]),
    (["nosuch.npz", "--checkpoint", "{run}"], ARTEFACT, ["saved buffer nosuch.npz does not exist"]),
    (["{run}", "--checkpoint", "{run}"], USAGE, ["cannot use --checkpoint here"]),
    (["{run}", "--rolouts", "3"], USAGE, ["no such option: --rolouts", "did you mean --rollouts?"]),
    (["{run}", "--rollouts", "0"], USAGE, ["--rollouts 0"]),
    (["{run}", "--collect", "99999999"], USAGE, ["--collect", "10,000,000"]),
    (["{run}", "--agent", "3"], USAGE, ["there is no agent 3", "the only agent is 0"]),
    (["{run}", "--actions", "some"], USAGE, ["--actions some", "single"]),
    (["{run}", "--temperature", "0"], USAGE, ["--temperature 0"]),
    (["{run}", "--epsilon", "2"], USAGE, ["--epsilon 2"]),
    (["{run}", "--policy", "greedy", "--aggregate", "policy"], USAGE, ["needs probabilities of actions"]),
    (["{run}", "--horizon", "soon"], USAGE, ["--horizon soon"]),
    (["{run}", "--gamma", "1.5"], USAGE, ["--gamma 1.5"]),
    (["{run}", "--metric", "wasserstein"], USAGE, ["--metric wasserstein", "w1, dmean, tv, js"]),
    (["{run}", "--indices", "missing.txt"], ARTEFACT, ["cannot read missing.txt"]),
    (["{run}", "--indices", "/dev/zero"], ARTEFACT, ["cannot read /dev/zero"]),
    (["{run}", "--target-ess", "2"], USAGE, ["--target-ess 2"]),
    (["{run}", "--json", "--csv", "-"], USAGE, ["cannot print --json and --csv - at the same time"]),
)

REPORT = rows(
    "report",
    ([], USAGE, ["missing argument 'RUN'"]),
    (["nosuch"], ARTEFACT, ["there is no run nosuch"]),
    (["{run}", "{run}"], USAGE, ["cannot report corridor twice"]),
    (["{run}", "--episodes", "1000"], USAGE, ["--episodes 1000"]),
    (["{run}", "--html", "page.pdf"], USAGE, ["expected a name that ends in .html", "--html page.html"]),
    (["{run}", "--html", "no/such/folder/a.html"], USAGE, ["cannot write the report no/such/folder"]),
    (["{run}", "--json", "--md", "-"], USAGE, ["cannot print --json and --md - at the same time"]),
)
COMPARE = [*COMPARE, *REPORT]  # both show runs side by side
