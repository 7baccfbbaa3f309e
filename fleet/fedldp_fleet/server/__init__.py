"""The server: the HTTPS road over the job engine, the operator's page, and commands."""
