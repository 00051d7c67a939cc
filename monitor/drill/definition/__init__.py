"""What a drill is: its cluster, its lies, what it does on its stage, and what must be found."""
