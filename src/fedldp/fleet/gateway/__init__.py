"""The gateway: the process between the server and some vaults. It stores no reports.

`relay` passes a question on to vaults and their answers back. `process` runs a SuperNode of Flower
in a private network, and `uplink` is the only way from there to the server. `record` counts what
was passed on, for the log and the `status`.
"""
