"""`python -m fedldp` is the command `fedldp`."""

from fedldp.cli import main

main()
