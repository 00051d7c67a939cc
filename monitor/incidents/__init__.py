"""What was found, for people: the findings and incidents of a data folder, the verdict, and who did what.

Read from the Delta tables alone; commands, the status page and reports show it each in its way.
"""
