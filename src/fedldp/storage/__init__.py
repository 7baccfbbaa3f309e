"""Files that survive crashes and notice damage: databases, and what is written atomically.

Everything in here needs the standard library alone.
"""
