"""Counting many reports: packets in files, shards, and engines that share the work."""
