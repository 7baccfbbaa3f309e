"""The gateway: it passes questions to its vaults and their reports to the server."""
