"""The vault: the process that holds the data of some vehicles, and answers questions about them.

`vault` decides who answers and draws the records, `listener` answers on a socket at times that tell
nothing, and `process` reads the configuration and the data from a folder.
"""
