"""The record of lookups."""
