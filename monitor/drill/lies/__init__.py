"""The lies that the proxy tells in drills, each one published bug's mechanism; drills that are one lie: `plays`."""
