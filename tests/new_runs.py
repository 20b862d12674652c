"""Train, plan and open new runs of a configuration, as commands do with the options that they load."""

from hmx.jobs import plan as planning
from hmx.jobs import train as jobs
from hmx.registry.load import Loaded, bind
from hmx.runs.session import open_task


def task_of(cfg, origins=None):
    return bind(Loaded(cfg, origins or {}))


def train(cfg, **options):
    return jobs.train(task_of(cfg), **options)


def plan(cfg, origins=None):
    return planning.plan(task_of(cfg, origins))


def prepare(cfg, origins=None):
    return open_task(task_of(cfg, origins))
