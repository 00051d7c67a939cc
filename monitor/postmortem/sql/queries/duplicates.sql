-- Values that stand at several offsets: where, and who sent and who was given them.
-- $topic = %: only this topic
with written as (
    select topic_id, partition, writer, first_seq, first_seq + records as end_seq, first_offset - first_seq as apart
    from runs
    where first_offset is not null and type <> 'fail' and topic like $topic
),
-- Records are many, and runs by how far offset and number are apart few: what stands once, in order, overlaps nothing.
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
    topic || '/' || partition as place, value, list(distinct "offset" order by "offset") as offsets,
    list(distinct client order by client) filter (did = 'sent') as sent_by,
    list(distinct client order by client) filter (did = 'polled') as given_to,
    min(completed) as first_seen
from records join twice using (topic_id, partition, writer, seq)
where "offset" is not null and type <> 'fail'
group by place, value
order by first_seen
