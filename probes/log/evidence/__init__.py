"""The probe log by way of a topic: hosts that share neither a folder nor a bucket, but a Kafka cluster of evidence.

messages.py   an append as the messages of one transaction, and back
topic.py      the topic, as a committer sees it: where appends go instead of the table
intake.py     from the topic into the table `history`, exactly once
"""
