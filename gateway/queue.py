"""RQ with ids in JSON and one function only: what is read from Valkey can name no other."""

from __future__ import annotations

import os
from typing import Any

from django.db import connections
from rq.job import Job as RQJob
from rq.serializers import JSONSerializer
from rq.worker import Worker as RQWorker

from gateway.family import die_with_parent

RUN = "gateway.jobs.run"


class Job(RQJob):
    """Refuses any function but `gateway.jobs.run`, at both ends of the queue."""

    @property
    def func(self) -> Any:
        if self.func_name != RUN:
            raise ValueError(f"a job may run {RUN} only, not {self.func_name!r}")
        return super().func


class Worker(RQWorker):
    """A fork worker that reads JSON only, looks after itself more often than RQ's defaults (which take minutes to see
    a dead one), and whose job process dies with it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs |= {
            "job_class": Job,
            "serializer": JSONSerializer,
            "worker_ttl": 20,
            "maintenance_interval": 10,
            "job_monitoring_interval": 5,
        }
        super().__init__(*args, **kwargs)

    def fork_work_horse(self, job: RQJob, queue: Any) -> None:
        """Connections of the parent must not be shared with the fork."""
        connections.close_all()
        super().fork_work_horse(job, queue)

    def main_work_horse(self, job: RQJob, queue: Any) -> None:
        die_with_parent(os.getppid())
        super().main_work_horse(job, queue)
