"""The server: it asks a question in each round, counts the reports and takes a step."""
