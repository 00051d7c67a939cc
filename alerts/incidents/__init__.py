"""From findings to incidents: what a person is woken by, one thing each."""
