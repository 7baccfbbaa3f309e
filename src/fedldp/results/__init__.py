"""What a server learns: counts, estimates, and whether reports are plausible."""
