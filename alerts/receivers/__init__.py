"""Who is told of incidents: Alertmanager, webhooks, chat. Each has a thread of its own and is told of states.

To add one: a class with a `name` and `tell(incidents, memory, now)`, which brings its receiver up to date and raises
`SendFailed` where that did not work; it is called again later. It is made in `alerts.paging`.
"""
