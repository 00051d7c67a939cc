-- Where clients skipped forward or went back: the next poll of the same client did not begin where the last had ended.
-- $topic = %: only this topic
with polls as (
    select
        topic, partition, client, process, invoked, position_before, position_after, isolation, mode, rebalanced,
        lag(position_after) over (partition by topic_id, partition, process order by op, slice) as expected
    from operations
    where f in ('poll', 'txn') and position_before is not null and position_after is not null and topic like $topic
)
select
    invoked as time, client, topic || '/' || partition as place, if(position_before > expected, 'skipped', 'went back') as moved,
    expected as "from", position_before as "to", rebalanced
from polls
where position_before <> expected
order by time
