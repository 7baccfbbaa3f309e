"""The server: the process that asks, counts the answers and, in a training, improves the model.

`process` keeps Flower's SuperLink and the job alive. Gateways call `endpoint`, and `admission`
decides which of them may call. `rounds` runs a job round by round, `checkpoint` is the file from
which it resumes, `watch` tells people what it does, and `summary` describes its outcome. `status`
collects all that is known, in which gateways have the `names` of their keys' files, with the
`spending` of every job.
"""
