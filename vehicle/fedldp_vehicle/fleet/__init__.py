"""Takes part in a fleet: files of fedldp-fleet."""
