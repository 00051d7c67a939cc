-- Who saw one value, and when: its write, and everybody who was given it, in the order of time.
-- $writer: the writer's number, or its name
-- $seq: the value's number
-- $topic = %: the topic
-- $partition = -1: only this partition; a writer counts its values per partition
select
    completed as time, client, did, topic || '/' || partition as place, first_offset + $seq::bigint - first_seq as "offset", type, error,
    txn, isolation
from runs
where ($writer in (writer::varchar, writer_name) or writer_name like $writer || ':%' or writer_name like $writer || ' of %')
    and first_seq <= $seq::bigint and $seq::bigint < first_seq + records
    and topic like $topic and $partition::int in (-1, partition)
order by time
