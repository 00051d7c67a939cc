-- Values that stand at several offsets: where, and who sent and who was given them.
-- $topic = %: only this topic
with twice as (
    select topic_id, partition, writer, seq
    from records
    where "offset" is not null and type <> 'fail' and topic like $topic
    group by all
    having min("offset") <> max("offset")
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
