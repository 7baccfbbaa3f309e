"""Everything that depends on Flower, except the two apps in `fedldp.fleet.app`.

`strategy` is the loop of the ServerApp, `messages` puts bytes into Flower's messages, `programs`
runs Flower's programs, and `bundle` is the app that gateways accept.
"""
