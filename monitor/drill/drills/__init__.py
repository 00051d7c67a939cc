"""The drills themselves, by theme. `monitor.drill.definition` says what a drill is, `monitor.drill.registry` which."""
