package adbcconn

import (
	"context"
	"errors"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// committing is a driver with transactions, of which it tells what it was asked. One of the steps may fail.
type committing struct {
	copying
	fails string
	races int // so many of its tables are made by somebody else meanwhile
}

func (d *committing) Open(context.Context) (adbc.Connection, error) {
	return &committingConn{copyingConn{driver: &d.copying}, d}, nil
}

type committingConn struct {
	copyingConn
	driver *committing
}

func (c *committingConn) step(name string) error {
	c.driver.ran = append(c.driver.ran, name)
	if name == c.driver.fails {
		return adbc.Error{Code: adbc.StatusInvalidArgument, Msg: "no " + name}
	}
	return nil
}

func (c *committingConn) SetOption(_, value string) error { return c.step("autocommit " + value) }
func (c *committingConn) Commit(context.Context) error    { return c.step("commit") }
func (c *committingConn) Rollback(context.Context) error  { return c.step("rollback") }

func (c *committingConn) NewStatement() (adbc.Statement, error) {
	return &committingStatement{copyingStatement{driver: &c.driver.copying}, c}, nil
}

type committingStatement struct {
	copyingStatement
	conn *committingConn
}

// ExecuteQuery ends a transaction where it refuses.
func (s *committingStatement) ExecuteQuery(ctx context.Context) (array.RecordReader, int64, error) {
	rows, n, err := s.copyingStatement.ExecuteQuery(ctx)
	if err != nil && len(s.conn.driver.ran) > 0 {
		s.conn.driver.fails = "load"
	}
	return rows, n, err
}

func (s *committingStatement) ExecuteUpdate(ctx context.Context) (int64, error) {
	if d := s.conn.driver; d.races > 0 && s.rows != nil {
		d.races--
		d.ran = append(d.ran, "race")
		return 0, adbc.Error{Code: adbc.StatusIntegrity, Msg: "made"}
	}
	n, err := s.copyingStatement.ExecuteUpdate(ctx)
	if s.conn.driver.fails == "load" {
		err = adbc.Error{Code: adbc.StatusIntegrity, Msg: "no load"}
	}
	return n, err
}

// By themselves the drivers for PostgreSQL and SQLite leave an empty table where the rows are refused, also in place of one that they replace.
func TestRowsThatAreNotStoredLeaveWhatThereWas(t *testing.T) {
	const begin, end = "autocommit false", "autocommit true"
	n := arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}
	pg, kept, undone := "ADBC PostgreSQL Driver", []string{begin, "load", "commit", end}, []string{begin, "load", "rollback", end}
	for name, c := range map[string]struct {
		driver  string
		fails   string
		mode    backend.IngestMode
		tx      backend.TxID
		column  string // of the table that is there
		refuses bool   // to be asked for the columns
		broken  bool   // the reader of the rows
		want    []string
		err     string
		lost    bool
	}{
		"replaced":                 {driver: pg, mode: backend.IngestReplace, want: kept},
		"created, in SQLite":       {driver: "ADBC SQLite Driver", mode: backend.IngestCreate, want: kept},
		"created or not":           {driver: pg, want: kept},
		"into what is there":       {driver: pg, column: "int8", want: []string{"load"}},
		"appended":                 {driver: pg, mode: backend.IngestAppend, want: []string{"load"}},
		"appended, in SQLite":      {driver: "ADBC SQLite Driver", mode: backend.IngestAppend, want: kept},
		"refused, in SQLite":       {driver: "ADBC SQLite Driver", fails: "load", mode: backend.IngestAppend, want: undone, err: "no load"},
		"in a transaction":         {driver: pg, mode: backend.IngestReplace, tx: "tx", want: []string{"load"}},
		"of another driver":        {driver: "another", mode: backend.IngestReplace, want: []string{"load"}},
		"refused":                  {driver: pg, fails: "load", mode: backend.IngestReplace, want: undone, err: "no load"},
		"not to be read":           {driver: pg, mode: backend.IngestReplace, broken: true, want: undone, err: "the reader's"},
		"of another type":          {driver: pg, column: "float8", err: "float8"},
		"not asked for the table":  {driver: pg, refuses: true, want: kept},
		"begin fails":              {driver: pg, fails: begin, want: []string{begin}, err: "no " + begin},
		"commit fails":             {driver: pg, fails: "commit", want: []string{begin, "load", "commit"}, err: "no commit", lost: true},
		"what follows commit does": {driver: pg, fails: end, want: kept, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &committing{copying: copying{name: c.driver}, fails: c.fails}
			d.refuses = c.refuses
			if c.column != "" {
				d.columns = [][2]string{{"n", c.column}}
			}
			conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
			require.NoError(t, err)
			rows := rowOf(t, n)
			if c.broken {
				rows = failing{rows, errors.New("the reader's")}
			}
			_, err = conn.Ingest(t.Context(), rows, backend.IngestOptions{Table: "t", Mode: c.mode}, backend.Call{Tx: c.tx})
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, c.want, d.ran)
			require.Equal(t, c.lost, conn.Lost() != nil)
			require.NoError(t, conn.Close())
		})
	}
	d := &committing{copying: copying{name: pg}}
	d.fails = "rollback"
	conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.NoError(t, err)
	_, err = conn.Ingest(t.Context(), failing{rowOf(t, n), errors.New("the reader's")}, backend.IngestOptions{Table: "t"}, backend.Call{})
	require.ErrorContains(t, err, "the reader's")
	require.ErrorIs(t, conn.Lost(), errTxEndFailed)
	require.NoError(t, conn.Close())
}

// Of several ingestions that make one table PostgreSQL refuses all but one, once that has committed.
func TestATableThatIsMadeMeanwhileIsLoaded(t *testing.T) {
	n := arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}
	undone, done := []string{"autocommit false", "race", "rollback", "autocommit true"}, []string{"autocommit false", "load", "commit", "autocommit true"}
	const pg = "ADBC PostgreSQL Driver"
	for name, c := range map[string]struct {
		driver string
		races  int
		mode   backend.IngestMode
		want   []string
		fails  bool
	}{
		"once":              {pg, 1, backend.IngestCreateAppend, append(undone[:4:4], done...), false},
		"twice":             {pg, 2, backend.IngestCreateAppend, append(undone[:4:4], undone...), true},
		"to be made":        {pg, 1, backend.IngestCreate, undone, true},
		"to be filled":      {pg, 1, backend.IngestAppend, []string{"race"}, true},
		"by another driver": {"ADBC Snowflake Driver - Go", 1, backend.IngestCreateAppend, []string{"race"}, true}, // which may be about to read
	} {
		t.Run(name, func(t *testing.T) {
			d := &committing{copying: copying{name: c.driver}, races: c.races}
			conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
			require.NoError(t, err)
			_, err = conn.Ingest(t.Context(), rowOf(t, n), backend.IngestOptions{Table: "t", Mode: c.mode}, backend.Call{})
			require.Equal(t, c.fails, err != nil, err)
			require.Equal(t, c.want, d.ran)
			require.NoError(t, conn.Close())
		})
	}
}
