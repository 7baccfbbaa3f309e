"""The paper's own tables and claims, computed."""
