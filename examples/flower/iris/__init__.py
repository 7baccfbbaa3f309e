"""A Flower app that learns to tell irises apart, with local differential privacy."""
