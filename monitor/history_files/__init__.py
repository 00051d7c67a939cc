"""Histories read from files, in the form of Jepsen's Kafka workload, as slices that the rules can check.

A history is a sequence of events, each a map:

    {:index 3, :time 12345, :type :invoke, :process 0, :f :txn, :value [[:send 1 7] [:poll]]}
    {:index 5, :time 23456, :type :ok, :process 0, :f :txn, :value [[:send 1 [40 7]] [:poll {2 [[5 1] [6 2]]}]]}

`type` is invoke, ok, fail or info; a process has one operation open at a time, and its invocation and completion make
one operation; a process that invokes another before that is refused. `f` is send, poll, txn, assign, subscribe or
crash; events of anything else (the nemesis, debugging) are passed over. `time` counts nanoseconds.

The value of a send, poll or txn is a list of *micro-operations*: `[:send key value]`, acknowledged as
`[:send key [offset value]]`, and `[:poll]`, completed as `[:poll {key [[offset value] ...]}]`. Offsets may be nil. The
value of an assign or subscribe is the list of its keys; with `:seek-to-beginning? true` it begins them anew.
`:rebalance-log` lists the rebalances during an operation, each a map with the `:keys` that it took or gave.

Files hold JSON, one map a line or one array of maps, or EDN, one map after the other or one vector of maps. In JSON the
names are strings, with or without the keyword's colon. Either may be compressed with gzip, or on standard input.

`source` opens a file or standard input; `edn` reads EDN; `events` finds a file's form and reads its maps; `operations`
pairs them into operations; `slices` lays those out as the table that the rules take; `names` leads back from the rules'
numbers to the file's keys and values; `verdict` words the findings in the file's terms; `verdict_text` prints them.
"""
