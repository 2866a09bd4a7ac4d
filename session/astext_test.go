package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// TestATextThatServersRunWhilePreparingItIsNotPrepared: each execution sends it.
func TestATextThatServersRunWhilePreparingItIsNotPrepared(t *testing.T) {
	for sql, asText := range map[string]bool{
		"PIVOT t ON a USING sum(b)":                                    true,
		"FROM (PIVOT t ON a USING sum(b))":                             true,
		"WITH p AS (PIVOT t ON a USING sum(b)) SELECT * FROM p":        true,
		"PIVOT t ON a IN ('x') USING sum(b) -- which is one statement": false,
		"SELECT 1":                  false,
		"COPY FROM DATABASE a TO b": true,
		"ALTER TABLE t ADD COLUMN at TIMESTAMP DEFAULT now()": true,
		"CREATE TABLE n AS PIVOT t ON a USING sum(b)":         true,
		"INSERT INTO t VALUES (1)":                            false,
	} {
		t.Run(sql, func(t *testing.T) {
			conn := &fakeConn{}
			prepared := 0
			conn.prepared = func(p *fakePrepared) backend.Prepared {
				if p.sql == sql {
					prepared++
				}
				return p
			}
			r := newRig(t, conn)
			s := r.handle
			q, err := s.PrepareQuery(t.Context(), sql)
			require.NoError(t, err)
			require.Nil(t, q.ResultSchema())
			for range 3 {
				res, err := q.Query(t.Context())
				require.NoError(t, err)
				for res.Next() {
					continue
				}
				require.NoError(t, res.Err())
				res.Release()
			}
			executed := 0
			for _, sent := range conn.Log() {
				if strings.HasSuffix(sent, sql) {
					executed++
				}
			}
			if asText {
				require.Equal(t, 3, executed, conn.Log())
				require.Zero(t, prepared)
			} else {
				require.Equal(t, 1, prepared)
			}
			require.NoError(t, q.Close(t.Context()))
			_, err = q.Query(t.Context())
			require.ErrorIs(t, err, backend.ErrHandleClosed)
			require.NoError(t, s.Close())
		})
	}
}
