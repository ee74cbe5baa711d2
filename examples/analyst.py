"""An analyst's notebook, as cells: votes of a running stack (`make demo` leaves none: headrace up).

    headrace up --flow examples/leaderboard.py

The stack is found by the data folder in the working directory; or name it: connect(url, key).
"""

# %% The stack, and one answer at one consistent point.
from headrace.client import BadRequest, connect

headrace = connect()
leaders = headrace.query(
    "SELECT name, count(*) AS votes FROM votes GROUP BY name ORDER BY votes DESC, name"
)
print(f"as of {leaders.as_of}, by {leaders.plan}")

# %% As pandas: integers are exact, NULL is no NaN, numeric is Decimal.
frame = leaders.pandas()
frame["share"] = frame["votes"] / frame["votes"].sum()
print(frame)

# %% How fresh it is to be, and parameters: values, never text.
merged = headrace.query("SELECT count(*) FROM votes", freshness="main").rows()
known = headrace.query("SELECT phone FROM votes WHERE name = ANY($1)", ["Edwina", "Kelly"]).rows()
print(f"{merged[0][0]} votes are merged; {len(known)} are for Edwina or Kelly")

# %% The same rows again, whatever has come since: as of the batches that an answer has told.
(again,) = headrace.query("SELECT count(*) FROM votes", as_of=leaders.as_of).rows()
print(f"{again[0]} votes as of {leaders.as_of}")

# %% What is large comes batch by batch, in little memory.
with headrace.query("SELECT phone, contestant FROM votes") as votes:
    counted = sum(batch.num_rows for batch in votes)
print(f"{counted} votes")

# %% As polars; and what is refused says where, and what to do.
print(headrace.query("SELECT contestant, avg(length(phone)) FROM votes GROUP BY 1").polars())
try:
    headrace.query("SELECT pg_sleep(10)")
except BadRequest as refused:
    print(f"{refused.code}, line {refused.line}: {refused.detail}\n  {refused.hint}")

# %% How it would be answered: each plan with its cost.
for candidate in headrace.explain("SELECT name, count(*) FROM votes GROUP BY name")["candidates"]:
    print(candidate["plan"], candidate["cost_ms"], candidate["why_not"])
