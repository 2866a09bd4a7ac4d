package dsql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

var errConflict = &pgconn.PgError{Code: "40001", Message: "mutation conflicts with another transaction, retry as needed (OC000)"}

func TestConflictsAreRetriedWithGrowingRandomPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		var slept time.Duration
		bound := 20 * time.Millisecond
		err := OCCPolicy{OnRetry: func(attempt int, err error, pause time.Duration) {
			require.Equal(t, calls, attempt)
			require.ErrorIs(t, err, errConflict)
			require.LessOrEqual(t, pause, bound)
			require.Positive(t, pause)
			slept += pause
			bound *= 2
		}}.Do(t.Context(), func(context.Context) error { calls++; return fmt.Errorf("wrapped: %w", errConflict) })
		var occ *OCCError
		require.ErrorAs(t, err, &occ)
		require.Equal(t, 6, occ.Attempts)
		require.Equal(t, 6, calls)
		require.ErrorIs(t, err, errConflict)
		require.Equal(t, slept, time.Since(began))
	})
}

func TestOnlyConflictsAreRetried(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		runs int
	}{
		"a conflict":                     {errConflict, 6},
		"OC000 as the code":              {&pgconn.PgError{Code: "OC000"}, 6},
		"OC001 as the code":              {&pgconn.PgError{Code: "OC001"}, 6},
		"another error":                  {errors.New("OC000 in the text only"), 1},
		"another answer":                 {&pgconn.PgError{Code: "40P01"}, 1},
		"an unknown commit":              {ErrCommitUnknown, 1},
		"an unknown commit and conflict": {errors.Join(errConflict, ErrCommitUnknown), 1},
		"nothing":                        {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				err := RetryOCC(t.Context(), func(context.Context) error { runs++; return c.err })
				require.Equal(t, c.runs, runs)
				require.ErrorIs(t, err, c.err)
			})
		})
	}
}

func TestTheEndOfTheContextEndsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := OCCPolicy{Attempts: -1}.Do(ctx, func(context.Context) error { return errConflict })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errConflict)
	})
}

func TestAnAnswerToCommitIsFinalUnlessItEndsTheSession(t *testing.T) {
	for err, want := range map[error]bool{
		errConflict: true,
		&pgconn.PgError{Code: "54000", Severity: "ERROR"}: true,
		pgx.ErrTxClosed:         true,
		pgx.ErrTxCommitRollback: true,
		&pgconn.PgError{Code: "57P01", Severity: "FATAL"}:            false,
		&pgconn.PgError{Code: "57P02", SeverityUnlocalized: "PANIC"}: false,
		&pgconn.PgError{Code: "40003", Severity: "ERROR"}:            false,
		&pgconn.PgError{Code: "08007", Severity: "ERROR"}:            false,
		&pgconn.PgError{Code: "XX000", Severity: "ERROR"}:            false,
		&pgconn.PgError{Code: "58030", Severity: "ERROR"}:            false,
		errors.New("unexpected EOF"):                                 false,
		context.DeadlineExceeded:                                     false,
	} {
		require.Equal(t, want, commitRefused(err), "%v", err)
	}
}

// A pause that ends together with its context does not run the transaction again.
func TestNothingRunsAgainAfterTheEndOfItsContext(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		calls, told := 0, 0
		policy := OCCPolicy{Pause: 1, MaxPause: 1, Attempts: -1, OnRetry: func(int, error, time.Duration) {
			if told++; told == 2 {
				cancel()
			}
		}}
		err := policy.Do(ctx, func(context.Context) error { calls++; return errConflict })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := OCCPolicy{OnRetry: func(int, error, time.Duration) { t.Error("it does not run again") }}.Do(ctx, func(context.Context) error {
		cancel()
		return errConflict
	})
	require.ErrorIs(t, err, context.Canceled)
}
