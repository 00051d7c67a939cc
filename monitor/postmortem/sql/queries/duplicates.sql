-- Values that stand at several offsets: where, and who sent and who was given them.
-- $topic = %: only this topic
with written as (
    select topic_id, partition, writer, first_seq, first_seq + records as end_seq, first_offset - first_seq as apart
    from runs
    where first_offset is not null and type <> 'fail' and topic like $topic
),
-- Records are many, so that runs are compared: in a log in order, those of another distance have other numbers.
spans as (
    select topic_id, partition, writer, apart, min(first_seq) as low, max(end_seq) as high from written group by all
),
beside as (
    select *, max(high) over (
        partition by topic_id, partition, writer order by low, high rows between unbounded preceding and 1 preceding
    ) as before
    from spans
),
suspects as (
    select topic_id, partition, writer, low, least(high, before) as high from beside where before > low
),
twice as (
    select topic_id, partition, writer, seq
    from (
        select
            topic_id, partition, writer, apart,
            unnest(range(greatest(first_seq, low), least(end_seq, high))) as seq
        from written join suspects using (topic_id, partition, writer)
        where first_seq < high and low < end_seq
    )
    group by all
    having min(apart) <> max(apart)
)
select
    r.topic || '/' || r.partition as place, r.writer_name || '/' || t.seq as value,
    list(distinct r.first_offset + t.seq - r.first_seq order by r.first_offset + t.seq - r.first_seq) as offsets,
    list(distinct r.client order by r.client) filter (r.did = 'sent') as sent_by,
    list(distinct r.client order by r.client) filter (r.did = 'polled') as given_to,
    min(r.completed) as first_seen
from runs r join twice t using (topic_id, partition, writer)
where r.first_offset is not null and r.type <> 'fail' and t.seq between r.first_seq and r.first_seq + r.records - 1
group by place, value
order by first_seen
