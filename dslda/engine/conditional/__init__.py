"""Conditional training on an executor: which documents, what is done with them, and in what order."""
