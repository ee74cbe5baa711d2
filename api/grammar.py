"""The grammar: the part of PostgreSQL's SQL that the island answers, as a list of what is allowed.

A node of the parsed query that is not on these lists is refused, so what sqlglot learns to parse
tomorrow is not open tomorrow. Nothing here reads a file, a setting, a catalogue, the network or
a clock other than the transaction's, writes anything, or makes much out of little (REPEAT).
"""

from sqlglot import exp

QUERIES: tuple[type[exp.Expression], ...] = (exp.Select, exp.Union, exp.Intersect, exp.Except)

CLAUSES: tuple[type[exp.Expression], ...] = (
    exp.With, exp.CTE, exp.Subquery, exp.From, exp.Join, exp.Lateral, exp.Values, exp.Where,
    exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube, exp.Having, exp.Order, exp.Ordered,
    exp.Limit, exp.Offset, exp.Fetch, exp.LimitOptions, exp.Distinct, exp.Window, exp.WindowSpec,
    exp.WithinGroup, exp.Filter, exp.Table, exp.TableAlias,
)  # fmt: skip

VALUES: tuple[type[exp.Expression], ...] = (
    exp.Column, exp.Identifier, exp.Star, exp.Alias, exp.Literal, exp.Boolean, exp.Null,
    exp.Interval, exp.Var, exp.Tuple, exp.Paren, exp.Array, exp.Cast, exp.DataType,
    exp.DataTypeParam, exp.Case, exp.If, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg,
    exp.DPipe, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Any, exp.All, exp.Exists,
    exp.Like, exp.ILike, exp.Escape, exp.SimilarTo, exp.RegexpLike, exp.RegexpILike, exp.AtTimeZone,
)  # fmt: skip

FUNCTIONS: tuple[type[exp.Func], ...] = (
    # aggregates
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Stddev, exp.StddevPop, exp.StddevSamp,
    exp.Variance, exp.VariancePop, exp.LogicalAnd, exp.LogicalOr, exp.GroupConcat, exp.ArrayAgg,
    exp.PercentileCont, exp.PercentileDisc, exp.Mode, exp.Corr,
    # windows
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag,
    exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue,
    # choices
    exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least,
    # numbers
    exp.Abs, exp.Round, exp.Ceil, exp.Floor, exp.Sign, exp.Sqrt, exp.Pow, exp.Exp, exp.Ln, exp.Log,
    exp.Trunc,
    # text
    exp.Lower, exp.Upper, exp.Initcap, exp.Length, exp.Trim, exp.Substring, exp.Left, exp.Right,
    exp.Replace, exp.SplitPart, exp.StrPosition, exp.Concat, exp.ConcatWs, exp.Reverse,
    exp.StartsWith, exp.MD5,
    # time
    exp.CurrentTimestamp, exp.CurrentDate, exp.TimestampTrunc, exp.Extract, exp.UnixToTime,
)  # fmt: skip

TYPES = frozenset(
    {
        exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE,
        exp.DType.DECIMAL, exp.DType.BOOLEAN, exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR,
        exp.DType.DATE, exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ,
        exp.DType.INTERVAL, exp.DType.UUID,
    }
)  # fmt: skip
"""The types that a value may be cast to; not regclass and its kin, which read the catalogue."""

ALLOWED = frozenset((*QUERIES, *CLAUSES, *VALUES, *FUNCTIONS))

# What a user would call a node that is refused.
CALLED: dict[type[exp.Expr], str] = {
    exp.Into: "SELECT ... INTO",
    exp.Lock: "a row lock (FOR UPDATE and its kin)",
    exp.Insert: "INSERT",
    exp.Update: "UPDATE",
    exp.Delete: "DELETE",
    exp.Merge: "MERGE",
    exp.TableSample: "TABLESAMPLE",
    exp.ByteString: "an E'...' string",
    exp.RawString: "a $$...$$ string",
    exp.Parameter: "a parameter",
    exp.Placeholder: "a parameter",
    exp.ObjectIdentifier: "a cast to a catalogue type",
    exp.Command: "a statement that is not a SELECT",
}
