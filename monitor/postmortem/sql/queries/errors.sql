-- Which errors clients had, minute by minute.
-- $topic = %: only this topic
select
    date_trunc('minute', completed) as minute, client, f, type, error, count(distinct (process, op)) as operations
from operations
where error is not null and topic like $topic
group by all
order by minute, operations desc
