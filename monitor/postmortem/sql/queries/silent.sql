-- When which brokers did not answer the observer, and how many partitions that concerned; without a broker where
-- observations failed and told of none.
-- $topic = %: only this topic
select
    date_trunc('second', completed) as time, settings['silent'] as silent_brokers, settings['brokers'] as brokers,
    any_value(error) as error, count(distinct (topic, partition)) filter (type <> 'ok') as partitions_unanswered
from operations
where f = 'offsets' and (settings['silent'] is not null or type <> 'ok') and topic like $topic
group by all
order by time
