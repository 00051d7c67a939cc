"""The drills themselves, by theme. See `monitor.drill.drill` for what a drill is, `monitor.drill.registry` for all."""
