"""The commands of a fleet, which `fedldp` finds by entry point."""
