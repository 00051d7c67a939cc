-- What was lost: records that were acknowledged, that no client was given, and that some went past.
-- $topic = %: only this topic
with acknowledged as (
    select distinct topic, topic_id, partition, "offset", value, writer, seq, client, completed, txn
    from records where did = 'sent' and type = 'ok' and "offset" is not null and topic like $topic
),
given as (select distinct topic_id, partition, writer, seq from records where did = 'polled'),
missing as (select * from acknowledged anti join given using (topic_id, partition, writer, seq)),
passes as (
    select topic_id, partition, client, position_before, position_after, completed
    from operations
    where f in ('poll', 'txn') and position_before < position_after
)
select
    m.topic || '/' || m.partition as place, m."offset", m.value, m.completed as acknowledged, m.txn,
    count(distinct p.client) as passed_by, min(p.completed) as first_passed
from missing m
join passes p
    on p.topic_id = m.topic_id and p.partition = m.partition
    and p.position_before <= m."offset" and m."offset" < p.position_after and p.completed > m.completed
group by all
order by place, m."offset"
