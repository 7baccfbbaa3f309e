"""Plans: what a fleet is asked, by which coders, and what a report looks like."""
