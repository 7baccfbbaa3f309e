"""The vault: the process that holds the data of some vehicles, and answers questions about them.

`vault` decides which vehicles answer and draws the records. `listener` answers on a socket, at
times that reveal nothing. `process` reads the configuration and the data from a folder. `record`
counts the questions, for the `status` that its owner sees.
"""
