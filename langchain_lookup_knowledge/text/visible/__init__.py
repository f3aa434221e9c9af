"""Markdown as a reader sees it: hidden parts, template tags, inline HTML."""
