"""Diagrams of what the probe log holds: from rows to shapes, and from shapes to SVG that stands inside a page."""
