-- What was lost: acknowledged records that no client was given and some went past, in whose place another one stands, or
-- that were given to clients and then to none any more.
-- $topic = %: only this topic
with acknowledged as (
    select distinct topic, topic_id, partition, "offset", value, writer, seq, client, invoked, completed, txn
    from records where did = 'sent' and type = 'ok' and "offset" is not null and topic like $topic
),
given as (select distinct topic_id, partition, writer, seq from records where did = 'polled'),
missing as (select * from acknowledged anti join given using (topic_id, partition, writer, seq)),
gone as (
    select distinct
        topic_id, partition, (evidence->>'offset')::bigint as "offset", (evidence->>'writer')::bigint as writer,
        (evidence->>'seq')::bigint as seq
    from findings
    where anomaly = 'vanished-record' and event = 'raised'
),
passes as (
    select topic_id, partition, client, position_before, position_after, invoked, completed
    from operations
    where f in ('poll', 'txn') and position_before < position_after
),
-- Until when the log held what is missing: what retention or DeleteRecords took away is not lost, and whoever read on
-- after that went past nothing.
held as (
    select
        m.topic_id, m.partition, m."offset", max(l.invoked) filter (where l.log_start <= m."offset") as held_until,
        bool_or(l.log_start > m."offset") as deleted
    from (
        select topic_id, partition, "offset" from missing union select topic_id, partition, "offset" from gone
    ) m
    join operations l on l.topic_id = m.topic_id and l.partition = m.partition and l.f = 'offsets' and l.log_start >= 0
    group by all
),
went_past as (
    select
        m.topic || '/' || m.partition as place, m."offset", m.value, m.completed as acknowledged, m.txn,
        count(distinct p.client) as passed_by, min(p.completed) as first_passed
    from missing m
    join passes p
        on p.topic_id = m.topic_id and p.partition = m.partition
        and p.position_before <= m."offset" and m."offset" < p.position_after and p.completed > m.completed
    left join held h on h.topic_id = m.topic_id and h.partition = m.partition and h."offset" = m."offset"
    where h.deleted is not true or p.completed <= h.held_until
    group by all
),
truncations as (
    select
        topic_id, partition, (evidence->>'written_again')::bigint as again, (evidence->>'known')::bigint as known, "at"
    from findings
    where anomaly = 'log-truncation' and event = 'raised'
),
-- By when the log had been cut: the write that took its first offset again was invoked after it. Its end may have been
-- listed (at) a moment before that write or long before or after it.
cuts as (
    select
        t.topic_id, t.partition, t.again, t.known,
        coalesce(
            max(a.invoked) filter (
                where a.completed between t."at" - interval 1 second and t."at" + interval 60 seconds
            ),
            min(a.invoked) filter (where a.completed > t."at"),
            max(a.invoked)
        ) as cut_by
    from truncations t
    -- Whatever became of the transaction of that write: it stands in the log.
    join (select * from records where did = 'sent' and "offset" is not null) a
        on a.topic_id = t.topic_id and a.partition = t.partition and a."offset" = t.again
    group by t.topic_id, t.partition, t.again, t.known, t."at"
),
-- Whose offset was given to a later write, by which time: clients were given that one there, and this one nowhere else.
-- So it is also where the log was cut, and nobody listed its end before it had grown again.
placed as (select distinct topic_id, partition, "offset", writer, seq from records where did = 'polled'),
overwritten as (
    select
        a.topic || '/' || a.partition as place, a."offset", a.value, a.completed, a.txn, min(b.invoked) as cut_by
    from acknowledged a
    join acknowledged b
        on b.topic_id = a.topic_id and b.partition = a.partition and b."offset" = a."offset"
        and b.invoked > a.completed and (b.writer <> a.writer or b.seq <> a.seq)
    semi join placed p
        on p.topic_id = b.topic_id and p.partition = b.partition and p."offset" = b."offset"
        and p.writer = b.writer and p.seq = b.seq
    anti join placed e
        on e.topic_id = a.topic_id and e.partition = a.partition and e."offset" <> a."offset"
        and e.writer = a.writer and e.seq = a.seq
    group by all
),
-- Polled, and missing from later reads: since the last that gave it to somebody. What somebody is still given is hidden
-- from some, and not lost.
vanished as (
    select
        a.topic || '/' || a.partition as place, a."offset", a.value, a.completed, a.txn, min(p.completed) as gone_by
    from acknowledged a
    join gone v
        on v.topic_id = a.topic_id and v.partition = a.partition and v."offset" = a."offset" and v.writer = a.writer
        and v.seq = a.seq
    join (
        select topic_id, partition, writer, seq, max(completed) as given_last
        from records
        where did = 'polled'
        group by all
    ) g
        on g.topic_id = a.topic_id and g.partition = a.partition and g.writer = a.writer and g.seq = a.seq
    join passes p
        on p.topic_id = a.topic_id and p.partition = a.partition
        and p.position_before <= a."offset" and a."offset" < p.position_after and p.invoked > g.given_last
    left join held h on h.topic_id = a.topic_id and h.partition = a.partition and h."offset" = a."offset"
    where h.deleted is not true or p.completed <= h.held_until
    group by all
),
lost as (
    select *, null::timestamptz as cut_by, false as over from went_past
    union all
    select place, "offset", value, completed, txn, null, null, cut_by, true from overwritten
    union all
    select place, "offset", value, completed, txn, null, null, gone_by, null from vanished
    union all
    select
        a.topic || '/' || a.partition, a."offset", a.value, a.completed, a.txn, null, null, c.cut_by, false
    from acknowledged a
    join cuts c
        on c.topic_id = a.topic_id and c.partition = a.partition
        and a."offset" between c.again and c.known and a.completed <= c.cut_by
)
select
    place, "offset", value, acknowledged, txn,
    case
        when count(cut_by) filter (where not over) > 0 then 'cut off' when bool_or(over) then 'overwritten'
        when count(cut_by) > 0 then 'vanished' else 'passed'
    end as how,
    coalesce(min(cut_by) filter (where not over), min(cut_by)) as gone_by,
    coalesce(max(passed_by), 0) as passed_by, min(first_passed) as first_passed
from lost
group by place, "offset", value, acknowledged, txn
order by place, "offset", acknowledged
