"""Count packets on distributed engines: Dask, Apache Spark, Apache Beam, and DuckDB.

Each engine has a module and an extra of its own, as in `from fedldp.engines import dask`: `dask`,
`spark`, `beam` and `duckdb`. All of them call the function behind `Plan.count`, and give the same
result, bit for bit.
"""
