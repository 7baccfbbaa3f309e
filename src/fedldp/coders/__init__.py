"""Coders turn a value into a code: exactly private, with integers as their odds."""
