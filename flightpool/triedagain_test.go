package flightpool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// SwanLake's DuckDB flushes what an appender has once more as it is destroyed behind a flush that has failed.
func TestAnInsertThatTheServerMayHaveTriedAgainIsNoConflict(t *testing.T) {
	const (
		conflict   = "duckdb error: TransactionContext Error: Failed to commit: Transaction conflict - attempting to insert into a table that another transaction has altered"
		storage    = "duckdb error: IO Error: could not write to the object store"
		constraint = "duckdb error: Constraint Error: NOT NULL constraint failed: t.a"
	)
	zoned := time.Unix(0, 0) // which is not bound, as a single row otherwise is
	update := func(ctx context.Context, p *FlightSQLPool, sql string, args ...any) error {
		_, err := p.Update(ctx, sql, args...)
		return err
	}
	for _, c := range []struct {
		name, words       string
		run               func(ctx context.Context, p *FlightSQLPool, t string) error
		conflict, partial bool // told by SwanLake
	}{
		{"conflict", conflict, func(ctx context.Context, p *FlightSQLPool, t string) error {
			return update(ctx, p, "INSERT INTO "+t+" VALUES (?)", zoned)
		}, false, true},
		{"storage", storage, func(ctx context.Context, p *FlightSQLPool, t string) error {
			return update(ctx, p, "INSERT INTO "+t+" VALUES (?)", zoned)
		}, false, true},
		{"constraint", constraint, func(ctx context.Context, p *FlightSQLPool, t string) error {
			return update(ctx, p, "INSERT INTO "+t+" VALUES (?)", zoned)
		}, false, false},
		{"PreparedQuery", conflict, func(ctx context.Context, p *FlightSQLPool, t string) error {
			return p.WithSession(ctx, func(ctx context.Context, s *SessionHandle) error {
				q, err := s.PrepareQuery(ctx, "INSERT INTO "+t+" VALUES (?)")
				if err == nil {
					_, err = q.Update(ctx, zoned)
				}
				return err
			})
		}, false, true},
		{"no parameters", conflict, func(ctx context.Context, p *FlightSQLPool, t string) error {
			return update(ctx, p, "INSERT INTO "+t+" VALUES (1)")
		}, true, false},
		{"no INSERT", conflict, func(ctx context.Context, p *FlightSQLPool, t string) error {
			return update(ctx, p, "UPDATE "+t+" SET a = ?", 1)
		}, true, false},
	} {
		for _, profile := range []testserver.Profile{testserver.SwanLake(), testserver.Strict()} {
			t.Run(fmt.Sprint(profile.Name, " ", c.name), func(t *testing.T) {
				inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
					r.exec("CREATE TABLE " + r.bulkTable() + " (a BIGINT)")
					r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, Times: 1, Do: testserver.Fail(codes.Internal, c.words)})
					err := c.run(r.Context(), r.pool, r.bulkTable())
					require.ErrorContains(r, err, c.words)
					swan := profile.Name == "swanlake"
					require.Equal(r, swan && c.conflict || !swan && c.words == conflict, IsConflict(err))
					var told *Error
					require.True(r, errors.As(err, &told))
					require.Equal(r, swan && c.partial, told.Partial)
				})
			})
		}
	}
}
