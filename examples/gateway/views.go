package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// poolsSQL is what the gateway shows of itself: live numbers, joined and sorted by
// the SQL of DuckDB.
const poolsSQL = `
SELECT p.server_name AS server, p.db_type AS kind, p.healthy, p.total_conns AS conns, p.active, p.idle, p.acquires,
       u.users, round(u.p99, 2) AS p99_wait_ms, coalesce(p.unhealthy_reason, '') AS reason,
       coalesce(round(date_diff('millisecond', p.unhealthy_since, now()) / 1000.0, 1) || ' s ago', '') AS since
FROM sys.remote_pool_stats p
LEFT JOIN (SELECT server_name, string_agg(local_user, ' ' ORDER BY local_user) AS users, max(p99_wait_ms) AS p99
           FROM sys.remote_user_pool_stats GROUP BY ALL) u USING (server_name)
ORDER BY p.server_name`

// show prints a query's rows, and returns them.
func show(ctx context.Context, out io.Writer, r *registry.Registry, sql string) ([]map[string]string, error) {
	result, err := r.Query(ctx, "duck", "bob", sql)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range result.Schema().Fields() {
		names = append(names, f.Name)
	}
	rows := []map[string]string{}
	cells := [][]string{names}
	for batch, err := range result.Batches() {
		if err != nil {
			return nil, err
		}
		for i := range int(batch.NumRows()) {
			row, line := map[string]string{}, make([]string, len(names))
			for c, name := range names {
				line[c] = strings.Clone(batch.Column(c).ValueStr(i)) // the text lies in the batch
				row[name] = line[c]
			}
			rows, cells = append(rows, row), append(cells, line)
		}
	}
	align(out, cells)
	return rows, nil
}

func align(out io.Writer, cells [][]string) {
	width := make([]int, len(cells[0]))
	for _, line := range cells {
		for c, cell := range line {
			width[c] = max(width[c], len(cell))
		}
	}
	for _, line := range cells {
		text := " "
		for c, cell := range line {
			text += fmt.Sprintf(" %-*s", width[c], cell)
		}
		fmt.Fprintln(out, strings.TrimRight(text, " "))
	}
}
