-- When which brokers did not answer the observer that asked them, and how many partitions that concerned; without a
-- broker where observations failed and told of none.
-- $topic = %: only this topic
select
    date_trunc('second', completed) as time,
    array_to_string(list_sort(list(distinct asked::int) filter (asked is not null)), ',') as silent_brokers,
    any_value(settings['brokers']) as brokers, any_value(error) as error,
    count(distinct (topic, partition)) as partitions_unanswered
from unanswered
where topic like $topic
group by 1
order by 1
