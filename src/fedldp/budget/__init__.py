"""What a vehicle has spent: its ledger, periods of a calendar, and shuffling."""
