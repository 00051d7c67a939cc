-- What every client did with one offset: who sent a record to it, who was given one there, who went past it.
-- $offset: the offset
-- $partition: the partition
-- $topic = %: the topic
select time, client, did, value, type, error, from_offset as "from", to_offset as "to", isolation, topic
from (
    select
        completed as time, client, if(did = 'sent', 'sent it', 'was given it') as did,
        writer_name || '/' || (first_seq + $offset::bigint - first_offset) as value, type, error,
        first_offset as from_offset, last_offset as to_offset, isolation, mode, topic
    from runs
    where partition = $partition::int and topic like $topic
        and first_offset <= $offset::bigint and $offset::bigint <= last_offset
    union all
    select
        completed, client, 'went past it', null, type, error, position_before, position_after - 1, isolation, mode, topic
    from operations
    where partition = $partition::int and topic like $topic and f in ('poll', 'txn')
        and position_before <= $offset::bigint and $offset::bigint < position_after
        and not coalesce(list_contains(list_transform(
            polled_runs, lambda r: r."offset" <= $offset::bigint and $offset::bigint < r."offset" + r.length
        ), true), false)
)
order by time
