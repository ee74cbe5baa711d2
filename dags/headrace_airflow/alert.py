"""The alert: who is told, and what, when a task or a run has failed for good."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, build_opener

from airflow.sdk import BaseNotifier, Context, Variable

VARIABLE = "headrace_alert_url"
TIMEOUT_S = 10.0
TOLD_BY_THE_TASK = "task_failure"


class Alert(BaseNotifier):
    """Writes to the log, and posts to the webhook that the Variable `headrace_alert_url` names.

    It posts JSON: `text`, which Slack, Mattermost and their like show, and its parts.
    """

    def notify(self, context: Context) -> None:
        """Tell of a task that failed, or of a run that failed without one, as by its timeout."""
        if context.get("reason") == TOLD_BY_THE_TASK:
            return
        told = _told(context)
        self.log.error("ALERT %s", told["text"])
        url = Variable.get(VARIABLE, default="")
        if url:
            self._post(url, told)

    def _post(self, url: str, told: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            request = Request(url, json.dumps(told).encode(), headers)  # noqa: S310
            build_opener().open(request, timeout=TIMEOUT_S).close()
        except (OSError, ValueError) as error:  # the URL may be a secret: it is not shown
            self.log.error("the alert could not be posted: %s", type(error).__name__)


def _told(context: Context) -> dict[str, Any]:
    ti = context.get("ti")
    dag_id = ti.dag_id if ti else context["dag"].dag_id
    task_id = ti.task_id if ti and "reason" not in context else None
    run_id = context["run_id"]
    why = str(context.get("exception") or context.get("reason") or "it ended without a word")
    name = f"{dag_id}.{task_id}" if task_id else dag_id
    return {
        "text": f"{name} failed in run {run_id}: {why}",
        "dag_id": dag_id,
        "task_id": task_id,
        "run_id": run_id,
        "error": why,
        "url": ti.log_url if ti and task_id else None,
    }
