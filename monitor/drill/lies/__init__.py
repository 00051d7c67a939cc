"""The lies that only one or two drills tell, by theme; those of general use are in `monitor.drill.proxy.lies`."""
