"""What the modules share and no user imports: validation, files, SQLite, bit packing."""
