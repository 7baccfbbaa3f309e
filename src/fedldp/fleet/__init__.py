"""A fleet in earnest: a server, gateways and the vehicles' vaults, on Flower.

The vault is the vehicle's own process: it holds the data, the cap, the ledger and the chance, and
answers a question with noisy reports alone. The gateway passes questions and reports on. The
server asks, counts and steps. See docs/fleet.md.
"""
