"""Do new rows of the probe log want a verdict at once, or may they wait a moment for those that follow?"""
