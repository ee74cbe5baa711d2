"""What a part tells about itself: log lines on standard error, one event a line."""

import logging
import sys
import time


def start_logging(part: str) -> None:
    """Send this process's log to standard error, each line with time, level and part."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname)s {part} %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("kafka", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
