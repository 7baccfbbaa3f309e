"""The agent: it holds the data and the ledger of vehicles, calls the server, and answers."""
