"""Conditional training: topics that predict the response from words alone (docs/model.md)."""
