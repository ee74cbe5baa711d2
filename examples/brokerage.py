"""The second half of `make demo`: TPC-DI, from its generator's files to an audited warehouse.

Derived from TPC-DI, not comparable to published results. Uses nothing but the command line, in a
data folder of its own, and stops what it starts. `examples/brokerage.py 1` has another scale.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import tpcdi.flow
from examples.demo import HEADRACE, Stack, asked, say, show

SCALE = 0.3
"""There are customers enough for all checks of the audit; at 0.2 there are just so many."""

QUERIES = {
    "who has traded most": """
        SELECT customerid, lastname, count(*) AS trades, sum(quantity * tradeprice) AS worth
        FROM dimtrade JOIN dimcustomer USING (sk_customerid)
        WHERE tradeprice IS NOT NULL GROUP BY customerid, lastname ORDER BY worth DESC LIMIT 3""",
    "the industries of which most is held": """
        SELECT industry, count(DISTINCT symbol) AS securities, sum(currentholding) AS pieces
        FROM factholdings JOIN dimsecurity USING (sk_securityid)
        JOIN dimcompany ON dimcompany.sk_companyid = factholdings.sk_companyid
        GROUP BY industry ORDER BY pieces DESC LIMIT 3""",
    "securities at their highest of the year, on the last day": """
        SELECT symbol, closeprice, fiftytwoweekhigh, peratio
        FROM factmarkethistory JOIN dimsecurity USING (sk_securityid)
        WHERE sk_dateid = 20170708 AND dayhigh = fiftytwoweekhigh ORDER BY symbol LIMIT 3""",
}


def main() -> int:
    """Run the demo; 0 only if the audit and the oracle have nothing to say."""
    return show(partial(run, scale=asked(SCALE)), Path(tpcdi.flow.__file__))


def run(stack: Stack, folder: Path, scale: str) -> int:
    """Generate, load, audit, stream and ask."""
    data = str(folder / f"sf{scale}")
    say(f"TPC-DI at scale {scale}: the files of a brokerage's seven kinds of systems")
    print(stack.run("tpcdi", "generate", "--scale", scale, "--out", data))
    say("the history and two days of changes, through Kafka, Spark and the core to the warehouse")
    print(stack.run("tpcdi", "load", data))
    say("every check of the audit, and all tables computed a second time from the files")
    command = [*HEADRACE, "tpcdi", "audit", data, *stack.shared]
    audit = subprocess.run(command, check=False)
    say("the days go on, as a stream of a thousand facts a second")
    print(stack.run("tpcdi", "stream", data, "--rate", "1000", "--seconds", "10"))
    for what, query in QUERIES.items():
        say(what)
        began = time.monotonic()
        print(stack.run("query", query, "--freshness", "staged"))
        print(f"in {time.monotonic() - began:.1f} s")
    return audit.returncode


if __name__ == "__main__":
    sys.exit(main())
