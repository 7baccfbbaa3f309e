"""LDP-FedSGD: train on a fleet, with one tiny report from each vehicle."""
