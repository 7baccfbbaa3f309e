"""Run one library's tasks on request, in its own environment: python worker.py MODULE FOLDER.

A line on the standard input names a task; a line of JSON comes back, with how long it took and what
came out. Time is that of one core or, where a library works in several processes, that of the wall
clock. Whatever the library prints goes to the standard error.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from work import Task, Work


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    def serve(tasks: Mapping[str, Task]) -> None:
        name = getattr(module, "CLOCK", "process_time")
        clock = getattr(time, name)
        say(
            versions={name: version(name) for name in module.PACKAGES},
            clock=name,
            tasks={name: task.vehicles for name, task in tasks.items()},
        )
        for line in sys.stdin:
            start = clock()
            result = tasks[line.strip()].run()
            say(seconds=clock() - start, result=result)

    module, work = importlib.import_module(sys.argv[1]), Work(Path(sys.argv[2]))
    if hasattr(module, "serve"):  # it has to set something up around it
        module.serve(work, serve)
    else:
        serve(module.tasks(work))


if __name__ == "__main__":
    main()
