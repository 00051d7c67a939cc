"""Real faults on a local cluster of our own: processes that end or freeze, links that are cut, clocks, disks.

Each fault is a small class (`fault`), aimed at a role (`roles`): whoever leads a partition, coordinates a transactional
id or a group, or is the controller, at the time when the fault begins. `recovery` tells when all is in sync again.
"""
