"""Count packets on distributed engines: Dask, Apache Spark, Apache Beam, and DuckDB.

Each engine has a module and an extra of its own: `fedldp.engines.dask`, `.spark`, `.beam` and
`.duckdb`. All of them call the function behind `Plan.count`, and give the same result, bit for bit.
"""

from typing import TYPE_CHECKING

from fedldp._internal.lazy import attribute_loader

__all__ = ["beam", "dask", "duckdb", "spark"]

if TYPE_CHECKING:
    from fedldp.engines import beam, dask, duckdb, spark
else:
    __getattr__ = attribute_loader(__name__, {"": "beam dask duckdb spark"})

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
