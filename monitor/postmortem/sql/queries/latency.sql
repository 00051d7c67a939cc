-- How long writes took and how many failed, minute by minute: a transaction is one write, an abort that was asked for no
-- failure.
-- $topic = %: only writes that touched this topic
select
    date_trunc('minute', invoked) as minute, f, count(*) as operations,
    count(*) filter (failed) as failed,
    round(quantile_cont(took_ms, 0.5), 1) as p50_ms, round(quantile_cont(took_ms, 0.99), 1) as p99_ms,
    round(max(took_ms), 1) as max_ms
from writes
where len(list_filter(topics, lambda one: one like $topic)) > 0
group by all
order by minute, f
