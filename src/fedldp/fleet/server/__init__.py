"""The server: the process that asks, counts the answers and, in a training, improves the model.

`process` keeps Flower's SuperLink and the job alive. `endpoint` is what gateways reach, and
`admission` decides who of them may call. `rounds` runs a job round by round, `checkpoint` is the
file from which it resumes, `watch` says what it does, and `summary` what came of it.
"""
