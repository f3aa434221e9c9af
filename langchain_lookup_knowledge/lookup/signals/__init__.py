"""Measurements for those who operate a knowledge base."""
