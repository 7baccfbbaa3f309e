"""Count packets on distributed engines: Dask, Apache Spark, Apache Beam, and DuckDB.

Each engine has a module and an extra of its own: `dask`, `spark`, `beam` and `duckdb`, as in
`from fedldp.counting.engines import dask`. All of them call the function behind `Plan.count`, and
give the same result, bit for bit.
"""
