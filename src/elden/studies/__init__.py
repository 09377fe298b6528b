"""The paper's tables and our own studies, each of them a command."""
