"""Send runs to trackio, a tracker that keeps its records on this machine: `hmx train --sink trackio`.

An installed package adds the sink with these lines of its pyproject.toml, and `trackio show` draws the curves:

    [project.entry-points."hmx.sinks"]
    trackio = "trackio_sink:TrackioSink"
"""

import trackio

from hmx.config.codec import to_dict
from hmx.runs.sinks import EndState, Record, RunInfo, Sink


class TrackioSink(Sink):
    """One run of trackio per run, which a resume continues: its name ends in the run id."""

    def start(self, info: RunInfo) -> None:
        """Open the run of trackio, new or resumed."""
        self.several = info.num_seeds > 1
        name = f"{info.name}-{info.run_id[:8]}"
        self.run = trackio.init("hmx", name, config=to_dict(info.config), resume="allow", auto_log_cpu=False)

    def record(self, record: Record) -> None:
        """Send the metrics of one seed that have a value."""
        prefix = f"seed-{record['seed']}/" if self.several else ""
        metrics = {prefix + name: value for name, value in record.items() if "/" in name and value is not None}
        self.run.log(metrics, step=int(record["env_steps"]))

    def close(self, state: EndState) -> None:
        """Write the remaining records, unless a second signal asked to end at once."""
        if state != "aborted":
            trackio.finish()
