"""What a part tells about itself: log lines on standard error, one event a line."""

import logging
import sys
import time
from contextvars import ContextVar

REQUEST: ContextVar[str] = ContextVar("request", default="")
"""The id of the request that is being answered, in whichever thread; empty outside of one."""


def start_logging(part: str) -> None:
    """Send this process's log to standard error, each line with time, level and part.

    A line that a request has caused has its id, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_name_request)
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname)s {part} %(name)s%(request)s: %(message)s",
        "%Y-%m-%dT%H:%M:%S",
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("kafka", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _name_request(record: logging.LogRecord) -> bool:
    request = REQUEST.get()
    record.request = f" request={request}" if request else ""
    return True
