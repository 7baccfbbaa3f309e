"""What is asked: attributes, schemas, and rows from files and data frames."""
