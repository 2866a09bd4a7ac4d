package main

import "fmt"

// query is one question to the data.
type query struct{ name, sql string }

// queries are about 750,000 flights and 3,376 airports.
func queries() []query {
	all := []query{
		{"busiest airports", `SELECT a.iata, a.city, count(*) AS flights FROM flights f JOIN airports a ON a.iata = f.origin GROUP BY ALL ORDER BY flights DESC LIMIT 20`},
		{"latest airports", `SELECT a.iata, a.city, avg(f.delay) AS late FROM flights f JOIN airports a ON a.iata = f.destination GROUP BY ALL HAVING count(*) > 1000 ORDER BY late DESC LIMIT 20`},
		{"delay by hour of day", `SELECT hour(date) AS hour, count(*) AS flights, avg(delay) AS late FROM flights GROUP BY hour ORDER BY hour`},
		{"delay by day of week", `SELECT dayname(date) AS day, avg(delay) AS late FROM flights GROUP BY ALL ORDER BY late`},
		{"delay by month", `SELECT month(date) AS month, count(*) AS flights, avg(delay) AS late FROM flights GROUP BY month ORDER BY month`},
		{"delay by state", `SELECT a.state, avg(f.delay) AS late, count(*) AS flights FROM flights f JOIN airports a ON a.iata = f.origin GROUP BY a.state ORDER BY late DESC`},
		{"busiest routes", `SELECT origin, destination, count(*) AS flights FROM flights GROUP BY ALL ORDER BY flights DESC LIMIT 20`},
		{"latest routes", `SELECT origin, destination, quantile_cont(delay, 0.9) AS p90 FROM flights GROUP BY ALL HAVING count(*) > 200 ORDER BY p90 DESC LIMIT 20`},
		{"longest routes", `SELECT origin, destination, max(distance) AS miles FROM flights GROUP BY ALL ORDER BY miles DESC LIMIT 20`},
		{"delay against distance", `SELECT distance // 250 * 250 AS miles, avg(delay) AS late, count(*) AS flights FROM flights GROUP BY miles ORDER BY miles`},
		{"correlation of delay and distance", `SELECT corr(delay, distance) AS correlation, regr_slope(delay, distance) AS slope FROM flights`},
		{"distribution of delays", `SELECT quantile_cont(delay, [0.01, 0.25, 0.5, 0.75, 0.99]) AS quantiles, stddev(delay) AS spread FROM flights`},
		{"worst days", `SELECT date::DATE AS day, avg(delay) AS late FROM flights GROUP BY day ORDER BY late DESC LIMIT 10`},
		{"share of late flights by state", `SELECT a.state, avg((f.delay > 15)::INT) AS share FROM flights f JOIN airports a ON a.iata = f.destination GROUP BY a.state ORDER BY share DESC`},
		{"traffic between states", `SELECT o.state AS origin, d.state AS destination, count(*) AS flights FROM flights f JOIN airports o ON o.iata = f.origin JOIN airports d ON d.iata = f.destination GROUP BY ALL ORDER BY flights DESC LIMIT 20`},
		{"airports without a direct return", `SELECT DISTINCT f.origin, f.destination FROM flights f ANTI JOIN (SELECT DISTINCT origin, destination FROM flights) r ON r.origin = f.destination AND r.destination = f.origin ORDER BY ALL`},
		{"latest flight of each airport", `SELECT origin, max_by(destination, delay) AS destination, max(delay) AS late FROM flights GROUP BY origin ORDER BY late DESC LIMIT 20`},
		{"running average of a week", `SELECT day, avg(late) OVER (ORDER BY day ROWS 6 PRECEDING) AS week FROM (SELECT date::DATE AS day, avg(delay) AS late FROM flights GROUP BY day) ORDER BY day`},
		{"rank of airports in their state", `SELECT state, iata, flights, rank() OVER (PARTITION BY state ORDER BY flights DESC) AS place FROM (SELECT a.state, a.iata, count(*) AS flights FROM flights f JOIN airports a ON a.iata = f.origin GROUP BY ALL) QUALIFY place = 1 ORDER BY flights DESC`},
		{"miles flown by month and state", `SELECT month(f.date) AS month, a.state, sum(f.distance) AS miles FROM flights f JOIN airports a ON a.iata = f.origin GROUP BY ALL ORDER BY miles DESC LIMIT 20`},
	}
	for _, airport := range []string{"ATL", "BOS", "DEN", "DFW", "JFK", "LAS", "LAX", "MIA", "ORD", "PHX", "SEA", "SFO"} {
		all = append(all,
			query{"delay by hour from " + airport, fmt.Sprintf(`SELECT hour(date) AS hour, avg(delay) AS late FROM flights WHERE origin = '%s' GROUP BY hour ORDER BY hour`, airport)},
			query{"latest destinations from " + airport, fmt.Sprintf(`SELECT a.city, a.state, avg(f.delay) AS late FROM flights f JOIN airports a ON a.iata = f.destination WHERE f.origin = '%s' GROUP BY ALL ORDER BY late DESC LIMIT 10`, airport)},
		)
	}
	return all
}
