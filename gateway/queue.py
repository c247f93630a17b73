"""RQ with ids in JSON and one function only: what is read from Valkey can name no other."""

from __future__ import annotations

from typing import Any

from rq.job import Job as RQJob
from rq.worker import Worker as RQWorker

RUN = "gateway.jobs.run"


class Job(RQJob):
    """Refuses any function but `gateway.jobs.run`, at both ends of the queue."""

    @property
    def func(self) -> Any:
        if self.func_name != RUN:
            raise ValueError(f"a job may run {RUN} only, not {self.func_name!r}")
        return super().func


class Worker(RQWorker):
    """A fork worker that looks after itself more often than RQ's defaults, which take minutes to see a dead one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["job_class"] = Job
        kwargs.setdefault("worker_ttl", 20)
        kwargs["maintenance_interval"] = 10
        kwargs["job_monitoring_interval"] = 5
        super().__init__(*args, **kwargs)
