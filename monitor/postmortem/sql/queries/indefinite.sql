-- Which transactions were indefinite: their client was told neither committed nor aborted. What became of them.
-- $topic = %: only those that touched this topic
select
    min(o.invoked) as began, o.client, o.transactional_id, o.txn, any_value(o.txn_intent) as asked_for,
    max(o.end_invoked) as asked_at, max(o.completed) as given_up_at, any_value(o.error) as error,
    string_agg(distinct o.topic || '/' || o.partition, ', ' order by o.topic || '/' || o.partition) as places,
    coalesce(sum(o.sent_records), 0)::bigint as sent_records, coalesce(any_value(t.outcome), 'not known') as became
from operations o
left join (
    select cluster, txn, string_agg(distinct outcome, ' and ' order by outcome) as outcome from transactions group by all
) t using (cluster, txn)
where o.f = 'txn' and o.type = 'info' and o.topic like $topic
group by o.client, o.transactional_id, o.txn
order by began
