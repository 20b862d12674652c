"""A gradient report as a table for other programs: a row per checkpoint, bucket and component."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

COLUMNS = (
    "update", "env_steps", "bucket", "component", "groups", "samples", "steps", "weight", "bucket_share",
    "reward_std_mean", "return_mean", "norm", "low", "high", "raw", "sum_norm", "per_sample", "per_token", "loss",
    "component_share", "cos_all", "crossfit", "signal", "trace", "noise_scale", "snr",
    "score_mean", "draws", "replay_share", "replay_norm",
)  # fmt: skip


def table(found: Mapping[str, Any]) -> str:
    """The text of the file; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(found))
    return out.getvalue()


def _rows(found: Mapping[str, Any]) -> Iterator[list[Any]]:
    for report in found["reports"]:
        point = report["checkpoint"]
        for row in (*report["buckets"], report["all"]):
            for name, norm in row["norm"].items():
                low, high = row["interval"][name] or (None, None)
                noise, replay = row["gns"][name], row["replay"] or {"norm": {}}
                yield [
                    point["update"], point["env_steps"], row["name"], name, row["n_groups"], row["n_samples"],
                    row["n_tokens"], row["weight"], row["share"], row["reward_std"]["mean"], row["return_mean"],
                    norm, low, high, row["raw"].get(name), row["sum_norm"][name], row["per_sample"][name],
                    row["per_token"][name], row["loss"]["policy" if name == "task" else name],
                    row["component_share"].get(name), row["cos_all"][name], (row["crossfit"] or {}).get(name),
                    noise["signal"], noise["trace"], noise["scale"], noise["snr"],
                    row["score"]["mean"], replay.get("draws"), replay.get("share"), replay["norm"].get(name),
                ]  # fmt: skip
