-- The views of `offsetwatch sql`, over the Delta tables (history, findings, partition_state, readers, transactions) and
-- the tables made when the database is opened (clients, incidents, current_findings).

-- One row an operation and partition: who did what there, when, with how many records.
create view operations as
select
    h.cluster, h.topic, h.partition, h.invoked, h.completed,
    coalesce(c.client, 'process ' || h.process) as client,
    h.f, h.type, h.error,
    list_sum(list_transform(h.sent, lambda r: r.length))::bigint as sent_records,
    list_sum(list_transform(h.polled, lambda r: r.length))::bigint as polled_records,
    list_min(list_transform(coalesce(h.sent, h.polled), lambda r: r."offset")) as first_offset,
    list_max(list_transform(coalesce(h.sent, h.polled), lambda r: r."offset" + r.length - 1)) as last_offset,
    h.position_before, h.position_after,
    round(date_diff('microsecond', h.invoked, h.completed) / 1000.0, 3) as took_ms,
    h.transactional_id, h.txn, h.txn_intent, h.end_invoked,
    h.isolation, h.mode, h.rebalanced, h.assigned, h.log_start, h.log_end, h.last_stable, h.committed, h."group",
    h.sent as sent_runs, h.polled as polled_runs, h.irregular, h.altered, h.settings,
    c.kind, h.process, h.op, h.slice, h.topic_id, h.run
from history h
left join clients c using (cluster, process)
where h.f <> 'mark';

-- One row a write: a send or a transaction, over all partitions that it touched. `failed`: its client was not told that
-- it happened; an abort that was asked for, and came, is no failure.
create view writes as
select
    min(invoked) as invoked, max(completed) as completed, client, f,
    case when bool_or(type = 'info') then 'info' when bool_or(type = 'fail') then 'fail' else 'ok' end as type,
    any_value(error) as error,
    bool_or(type <> 'ok' and not (type = 'fail' and txn_intent is not distinct from 'abort')) as failed,
    round(date_diff('microsecond', min(invoked), max(completed)) / 1000.0, 3) as took_ms,
    coalesce(sum(sent_records), 0)::bigint as sent_records,
    list(distinct topic || '/' || partition order by topic || '/' || partition) as places,
    list(distinct topic order by topic) as topics,
    any_value(transactional_id) as transactional_id, any_value(txn) as txn, any_value(txn_intent) as txn_intent,
    any_value(end_invoked) as end_invoked, cluster, process, op
from operations
where f in ('send', 'txn')
group by cluster, process, op, client, f;

-- One row a run: so many records of one writer, at consecutive offsets, that one operation sent or was given.
create view runs as
select
    h.cluster, h.topic, h.partition,
    h.run."offset" as first_offset, h.run."offset" + h.run.length - 1 as last_offset, h.run.length as records,
    coalesce(w.client || ':' || right(h.run.writer::varchar, 4), h.run.writer::varchar) as writer_name,
    h.run.writer as writer, h.run.seq as first_seq,
    h.did, h.type, h.error,
    coalesce(c.client, 'process ' || h.process) as client,
    h.invoked, h.completed, h.txn, h.transactional_id, h.isolation, h.mode, h.process, h.op, h.topic_id
from (
    select * exclude (sent), unnest(sent) as run, 'sent' as did
    from (
        select
            cluster, topic, partition, type, error, invoked, completed, txn, transactional_id, isolation, mode, process,
            op, topic_id, sent
        from history where f in ('send', 'txn')
    )
    union all
    select * exclude (polled), unnest(polled) as run, 'polled' as did
    from (
        select
            cluster, topic, partition, type, error, invoked, completed, txn, transactional_id, isolation, mode, process,
            op, topic_id, polled
        from history where f in ('poll', 'txn')
    )
) h
left join clients c using (cluster, process)
left join (select cluster, writer, any_value(client) as client from clients where writer is not null group by all) w
    on w.cluster = h.cluster and w.writer = h.run.writer
where h.run.seq between 0 and 1099511627776; -- what is beyond them was not understood, and is in the table `rejected`

-- One row a record that an operation sent or was given. `value` names it for ever.
create view records as
select
    cluster, topic, partition, first_offset + i as "offset", writer_name || '/' || (first_seq + i) as value,
    did, type, error, client, invoked, completed, txn, transactional_id, isolation, mode,
    writer, first_seq + i as seq, process, op, topic_id
from (select *, unnest(range(records)) as i from runs);

-- One row a question of an observer that was not answered in full. `asked`: the broker that was asked and told nothing,
-- which is the leader that was known by then, not the one of the time when the row was written; an error of its own,
-- as that the epoch is another, is a word of it.
create view unanswered as
select
    q.cluster, q.topic, q.partition, q.invoked, q.completed,
    case
        when q.settings['leader'] is null then null
        when not starts_with(q.error, '_') and q.error not in ('LEADER_NOT_AVAILABLE', 'BROKER_NOT_AVAILABLE') then null
        when t.op is null or t.op = q.op then q.settings['leader']
        when t.led_by = 'nobody' then null
        else t.led_by
    end as asked,
    q.error, q."group", q.client, q.settings, q.process, q.op, q.topic_id
from (select * from operations where f = 'offsets' and type <> 'ok') q
asof left join (
    select process, topic_id, partition, invoked, op, settings['led_by'] as led_by
    from operations where f = 'offsets' and settings['led_by'] is not null
) t
    on t.process = q.process and t.topic_id = q.topic_id and t.partition = q.partition and t.invoked <= q.invoked;

-- How each partition stands: the newest row of the checks.
create view partitions as
select
    cluster, topic, partition, log_start, log_end, last_stable, unseen, acknowledged, polled, failed,
    highest_acknowledged, highest_polled, frontier, now as log_time, checked_through,
    round(date_diff('millisecond', checked_through, now) / 1000.0, 1) as behind_s,
    processes, check_failed, topic_id
from partition_state
order by all;
