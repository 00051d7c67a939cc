"""Drills: every bug that the field has published, made on purpose between a real client and a real broker.

A monitor that has never seen a fault is not known to work. A drill makes one bug happen and names the findings that
must follow; it passes when they were all raised, and no other violation was but consequences that the lie makes true.
There are two means: `proxy`, which speaks Kafka's protocol and alters chosen requests or responses, and real faults
on a local cluster. A drill never touches a cluster that is not its own.
"""
