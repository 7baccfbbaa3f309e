"""Flower: all that a fleet has to do with it, but for the two apps in `fedldp.fleet.app`.

`strategy` is the ServerApp's loop, `mod` turns the replies of somebody's ClientApp into reports,
`messages` puts bytes into Flower's messages, `programs` runs Flower's programs, and `bundle` is the
app that gateways accept.
"""
