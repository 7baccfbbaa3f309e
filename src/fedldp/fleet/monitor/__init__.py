"""The monitor: `/healthz`, `/metrics` and, for a server, the live page.

It is a process of its own, which reads what `fedldp.fleet.status` finds in the folder of a server,
a gateway or a vault. It holds no data and no keys, answers GET requests only, and changes nothing.

    address.py    where it listens, and whether it needs a token
    observe.py    what it shows: the status documents, the disk, certificates, results so far
    metrics.py    the same in Prometheus' text format
    web.py        a small HTTP server
    page/         the live page: HTML, JavaScript and CSS without a build step
    process.py    all of them together, for a folder; launch.py starts it beside a part
"""
