package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// stubborn is a driver whose calls take as long as they like, whatever their
// context says. It fails the test when two goroutines are inside it.
type stubborn struct {
	adbc.Database
	t      *testing.T
	inside atomic.Int32

	open, query, next, release, closing time.Duration // how long each takes
	begin, commit, autocommit           error         // what each fails with

	getInfo func() (array.RecordReader, error) // nil: the driver has none
	probed  func()                             // is called at the end of the probe

	atRelease, atClose func() // are called in them, unless nil

	malformed arrow.RecordBatch // of every result and of GetObjects, unless nil

	fails        error                    // of its readers at their end
	noPartitions bool                     // as under the driver manager
	readsOn      func(array.RecordReader) // is given the rows of an ingestion that it has failed, and goes on with them
	endsQuietly  bool                     // its readers come to their end, without an error, when the context ends

	opened, closed, released atomic.Int32
	loads, loadsEnded        int          // of tables
	prepared                 atomic.Int32 // open
}

// enter marks the driver as entered for d.
func (s *stubborn) enter(d time.Duration) {
	if s.inside.Add(1) != 1 {
		s.t.Error("two goroutines are inside the driver")
	}
	time.Sleep(d)
	s.inside.Add(-1)
}

func (s *stubborn) Open(context.Context) (adbc.Connection, error) {
	time.Sleep(s.open) // a database may be opened by many
	s.opened.Add(1)
	return &stubbornConn{driver: s}, nil
}

type stubbornConn struct {
	adbc.Connection
	driver *stubborn
}

func (c *stubbornConn) GetInfo(context.Context, []adbc.InfoCode) (array.RecordReader, error) {
	if c.driver.getInfo != nil {
		return c.driver.getInfo()
	}
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}

func (c *stubbornConn) NewStatement() (adbc.Statement, error) {
	return &stubbornStatement{driver: c.driver}, nil
}

func (c *stubbornConn) SetOption(_, value string) error {
	c.driver.enter(0)
	if value == adbc.OptionValueEnabled {
		return c.driver.autocommit
	}
	return c.driver.begin
}

func (c *stubbornConn) GetObjects(_ context.Context, _ adbc.ObjectDepth, _, schema, table, _ *string, types []string) (array.RecordReader, error) {
	switch {
	case len(types) > 0:
		panic("a list of types is not ended by the driver manager")
	case schema != nil && strings.ContainsAny(*schema, `%_\`), table != nil && strings.Contains(*table, `\`):
		return array.NewRecordReader(c.driver.malformed.Schema(), nil) // to many drivers the schema is a name, and others know no escapes
	}
	return array.NewRecordReader(c.driver.malformed.Schema(), []arrow.RecordBatch{c.driver.malformed})
}

func (c *stubbornConn) Commit(context.Context) error {
	c.driver.enter(0)
	return c.driver.commit
}

func (c *stubbornConn) Close() error {
	c.driver.enter(c.driver.closing)
	c.driver.closed.Add(1)
	if c.driver.atClose != nil {
		c.driver.atClose()
	}
	return nil
}

type stubbornStatement struct {
	adbc.Statement
	driver   *stubborn
	prepared bool
	bound    arrow.RecordBatch
	stream   array.RecordReader
}

func (s *stubbornStatement) SetSqlQuery(string) error { return nil }
func (s *stubbornStatement) Prepare(context.Context) error {
	s.driver.prepared.Add(1)
	s.prepared = true
	return nil
}

func (s *stubbornStatement) GetParameterSchema() (*arrow.Schema, error) {
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}

func (s *stubbornStatement) Close() error {
	s.unbind()
	if s.prepared {
		require.Equal(s.driver.t, s.driver.opened.Load(), s.driver.closed.Load()+1, "before its connection")
		s.driver.prepared.Add(-1)
	}
	return nil
}

func (s *stubbornStatement) ExecuteQuery(ctx context.Context) (array.RecordReader, int64, error) {
	s.driver.enter(s.driver.query)
	rows, err := s.driver.rows(ctx)
	return rows, -1, err
}

// What calls itself a Flight SQL driver is asked for partitions.
func (s *stubbornStatement) ExecutePartitions(context.Context) (*arrow.Schema, adbc.Partitions, int64, error) {
	s.driver.enter(s.driver.query)
	if s.driver.noPartitions {
		return nil, adbc.Partitions{}, -1, &adbc.Error{Code: adbc.StatusNotImplemented}
	}
	return nil, adbc.Partitions{NumPartitions: 1, PartitionIDs: [][]byte{nil}}, -1, nil
}

func (c *stubbornConn) ReadPartition(ctx context.Context, _ []byte) (array.RecordReader, error) {
	return c.driver.rows(ctx)
}

func (s *stubborn) rows(ctx context.Context) (array.RecordReader, error) {
	batch := s.malformed
	if batch == nil {
		batch = int64s(1, 2, 3)
		defer batch.Release()
	}
	rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	return &stubbornRows{rows, s, ctx}, err
}

type stubbornRows struct {
	array.RecordReader
	driver *stubborn
	ctx    context.Context // of the query
}

func (r *stubbornRows) Next() bool {
	r.driver.enter(r.driver.next)
	if r.driver.endsQuietly && r.ctx.Err() != nil {
		return false
	}
	return r.RecordReader.Next()
}

func (r *stubbornRows) Err() error {
	if r.driver.probed != nil {
		r.driver.probed()
	}
	return cmp.Or(r.RecordReader.Err(), r.driver.fails)
}

func (r *stubbornRows) Release() {
	r.driver.enter(r.driver.release)
	r.driver.released.Add(1)
	if r.driver.atRelease != nil {
		r.driver.atRelease()
	}
	r.RecordReader.Release()
}

// withStubborn opens a connection of a driver that obeys at first.
func withStubborn(t *testing.T, test func(t *testing.T, d *stubborn, c backend.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &stubborn{t: t}
		c, err := OpenGeneric(t.Context(), d, GenericConfig{})
		require.NoError(t, err)
		test(t, d, c)
		_ = c.Close()
		time.Sleep(time.Hour) // whatever was left to itself has ended
		synctest.Wait()
		require.Equal(t, d.opened.Load(), d.closed.Load(), "every connection is closed in the end")
	})
}

func TestADriverThatIgnoresItsContextHoldsUpNobody(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		d.query = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Query(ctx, "q", backend.Call{})
		require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		e := failure(t, err)
		require.Equal(t, backend.FaultContext, e.Fault)
		require.False(t, e.Unsent)
		require.ErrorContains(t, c.Lost(), "does not return")

		_, err = c.Query(t.Context(), "q", backend.Call{})
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.True(t, failure(t, err).Unsent)
		released := d.released.Load()
		time.Sleep(2 * time.Minute)
		require.Equal(t, released+1, d.released.Load(), "what came late is let go of")
	})
}

// Drivers free a statement by its Close alone, and some do not close a connection that has one.
func TestTheStatementsOfALostForeignConnectionAreClosed(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		first, err := c.Prepare(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		_, err = c.Prepare(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		require.EqualValues(t, 2, d.prepared.Load())
		d.query = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Query(ctx, "q", backend.Call{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, first.Close(t.Context()), backend.ErrSessionLost)
		_ = c.Close()
		time.Sleep(2 * time.Minute)
		require.Zero(t, d.prepared.Load())
		require.NoError(t, first.Close(t.Context()))
	})
}

// A transaction may be open then, which would take in what the next borrower stores.
func TestATransactionThatMayHaveBegunCostsAForeignConnection(t *testing.T) {
	for err, lost := range map[error]bool{
		&adbc.Error{Code: adbc.StatusTimeout, Msg: "no answer in time"}:              true,
		&adbc.Error{Code: adbc.StatusCancelled, Msg: "stopped"}:                      true,
		context.DeadlineExceeded:                                                     true,
		&adbc.Error{Code: adbc.StatusInternal, Msg: "broken"}:                        true,
		&adbc.Error{Code: adbc.StatusIO, Msg: "gone"}:                                true,
		&adbc.Error{Code: adbc.StatusNotImplemented, Msg: "no transactions"}:         false,
		&adbc.Error{Code: adbc.StatusInvalidState, Msg: "the database is read only"}: false,
	} {
		withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
			d.begin = err
			h := session.New(c, &session.Policy{OwnerContext: t.Context()}, func(error) {})
			got := h.BeginTransaction(t.Context())
			require.ErrorIs(t, got, err)
			require.Equal(t, lost, errors.Is(got, backend.ErrSessionLost), "%v", got)
			_ = h.Close()
		})
	}
}

// Drivers stop reading when the context ends, and tell an end then, or leave a batch out.
func TestRowsEndWithTheContextOfTheirCallByAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		want error
		end  func(c backend.Conn, cancel context.CancelFunc)
	}{
		"the caller leaves":        {context.Canceled, func(_ backend.Conn, cancel context.CancelFunc) { cancel() }},
		"the connection is closed": {backend.ErrSessionLost, func(c backend.Conn, _ context.CancelFunc) { go func() { _ = c.Close() }() }},
	} {
		for _, quietly := range []bool{true, false} {
			withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
				d.endsQuietly, d.next = quietly, 10*time.Millisecond
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				rows, err := c.Query(ctx, "q", backend.Call{})
				require.NoError(t, err)
				defer rows.Close()
				time.AfterFunc(time.Millisecond, func() { tc.end(c, cancel) })
				_, err = rows.Next()
				require.ErrorIs(t, err, tc.want, name)
			})
			withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
				d.endsQuietly, d.next = quietly, 10*time.Millisecond
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(time.Millisecond, func() { tc.end(c, cancel) })
				require.ErrorIs(t, c.Ping(ctx), tc.want, "%s: the server has not answered", name)
			})
		}
	}
}

func TestAReaderThatIgnoresItsContextHoldsUpNobody(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		rows, err := c.Query(ctx, "q", backend.Call{})
		require.NoError(t, err)
		d.next = time.Minute
		began := time.Now()
		_, err = rows.Next()
		require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rows.Close()
		require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond, "nor does Close wait")
	})
}

// Nobody waits for the release of a result that was read to its end but the next call,
// which may have no deadline.
func TestAReaderThatIsNotReleasedCostsTheConnection(t *testing.T) {
	for name, tc := range map[string]struct{ release, waits time.Duration }{
		"at once": {0, 0}, "soon": {4 * time.Second, 4 * time.Second}, "late": {time.Minute, 5 * time.Second},
	} {
		withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
			d.release = tc.release
			rows, err := c.Query(t.Context(), "q", backend.Call{})
			require.NoError(t, err)
			_, err = ints(t, rows)
			require.NoError(t, err)
			rows.Close()
			synctest.Wait()
			d.release = 0
			began := time.Now()
			err = c.Ping(t.Context())
			require.Equal(t, tc.waits, time.Since(began), name)
			if tc.release > tc.waits {
				require.ErrorIs(t, err, backend.ErrSessionLost, name)
				require.True(t, failure(t, err).Unsent, name)
				require.ErrorContains(t, c.Lost(), "does not return", name)
			} else {
				require.NoError(t, err, name)
			}
		})
	}
}

func TestCloseOfADriverThatDoesNotReturnIsBounded(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		d.closing = time.Minute
		began := time.Now()
		err := c.Close()
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, backend.StageClose, failure(t, err).Stage)
		require.Equal(t, err, c.Close(), "later calls do nothing")
	})
}

func TestCloseWaitsForTheDriverAndReleasesItsReadersFirst(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		rows, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		released := d.released.Load()
		require.NoError(t, c.Close())
		require.Equal(t, released+1, d.released.Load())
		_, err = rows.Next()
		require.ErrorIs(t, err, backend.ErrSessionLost)
		rows.Close()
		synctest.Wait()
		require.Equal(t, released+1, d.released.Load(), "once")
	})
}

func TestAnOpenThatIgnoresItsContextIsClosedWhenItComes(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, _ backend.Conn) {
		d.open = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := OpenGeneric(ctx, d, GenericConfig{})
		require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAFailedCommitEndsAForeignConnection(t *testing.T) {
	refusal := adbc.Error{Code: adbc.StatusIntegrity, Msg: "deferred constraint"}
	flightRefusal := adbc.Error{Code: adbc.StatusUnknown, VendorCode: int32(codes.Aborted), Msg: "[FlightSQL] conflict (Aborted; Commit)"}
	begun := adbc.Error{Code: adbc.StatusInternal, VendorCode: int32(codes.ResourceExhausted), Msg: "[FlightSQL] too many (ResourceExhausted; BeginTransaction)"}
	for name, test := range map[string]struct {
		err  error
		want backend.Fault // FaultUsage: none
	}{
		"refused by the database": {refusal, backend.FaultStatement},
		"a conflict":              {adbc.Error{Code: adbc.StatusIO, SqlState: [5]byte{'4', '0', '0', '0', '1'}}, backend.FaultStatement},
		"refused by DuckDB":       {adbc.Error{Code: adbc.StatusInternal, Msg: `Failed to execute query "COMMIT": TransactionContext Error: Failed to commit: write-write conflict on key: "1"`}, backend.FaultStatement},
		"a statement's failure":   {adbc.Error{Code: adbc.StatusIO, SqlState: [5]byte{'P', '0', '0', '0', '1'}}, backend.FaultUnknown},
		"refused by the server":   {flightRefusal, backend.FaultStatement},
		"unknown":                 {errors.New("broken pipe"), backend.FaultUnknown},
		"in doubt":                {adbc.Error{Code: adbc.StatusInvalidState, Msg: "?"}, backend.FaultUnknown},
		"of the transaction that the driver begins next": {begun, backend.FaultUsage},
	} {
		t.Run(name, func(t *testing.T) {
			withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
				tx, err := c.Begin(t.Context())
				require.NoError(t, err)
				d.commit = test.err
				err = c.EndTx(t.Context(), tx, true)
				if test.want == backend.FaultUsage {
					require.NoError(t, err, "the commit itself stands")
				} else {
					require.Equal(t, test.want, failure(t, err).Fault, "%v", err)
				}
				require.ErrorIs(t, c.Lost(), errTxEndFailed)
			})
		})
	}
}

func TestACommitStandsWhenTheDriverCannotGoOn(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		d.autocommit = errors.New("no")
		require.NoError(t, c.EndTx(t.Context(), tx, true))
		require.ErrorIs(t, c.Lost(), errTxEndFailed)
	})
}

func TestTheEndOfAnotherTransactionIsRefusedByTheConnectionItself(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		refused := func(tx backend.TxID) {
			d.commit = errors.New("must not be asked")
			err := c.EndTx(t.Context(), tx, true)
			require.ErrorIs(t, err, errUnknownTx)
			require.Equal(t, backend.FaultStatement, failure(t, err).Fault)
			require.NoError(t, c.Lost())
			d.commit = nil
		}
		refused("another")
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		refused("another")
		require.NoError(t, c.EndTx(t.Context(), tx, true))
		refused(tx)
	})
}

// The driver would store the rows outside of the transaction.
func TestAForeignFlightDriverDoesNotIngestInsideATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testserver.Strict())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		batch := int64s(1, 2, 3)
		defer batch.Release()
		rows := func() array.RecordReader {
			r, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
			require.NoError(t, err)
			t.Cleanup(r.Release)
			return r
		}
		n, err := c.Ingest(t.Context(), rows(), backend.IngestOptions{Table: "t"}, backend.Call{})
		require.NoError(t, err)
		require.EqualValues(t, 3, n)

		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		_, err = c.Ingest(t.Context(), rows(), backend.IngestOptions{Table: "t"}, backend.Call{Tx: tx})
		e := failure(t, err)
		require.Equal(t, backend.FaultUnsupported, e.Fault)
		require.True(t, e.Unsent)
		require.NoError(t, c.EndTx(t.Context(), tx, false))
	})
}

func TestFaultsOfForeignDriversByTheirStatus(t *testing.T) {
	for status, want := range map[adbc.Status]backend.Fault{
		adbc.StatusNotImplemented:  backend.FaultUnsupported,
		adbc.StatusInvalidArgument: backend.FaultStatement,
		adbc.StatusIntegrity:       backend.FaultStatement,
		adbc.StatusInternal:        backend.FaultUnknown,
		adbc.StatusIO:              backend.FaultTransport,
		adbc.StatusTimeout:         backend.FaultContext,
		adbc.StatusUnauthenticated: backend.FaultAuth,
	} {
		// A vendor code of another vendor's is no gRPC code.
		require.Equal(t, want, faultOf(adbc.Error{Code: status, VendorCode: 5, Msg: "SQLITE_BUSY"}), status)
	}
	// To the driver for PostgreSQL what it has no word for is an I/O error, also of a connection that lives.
	for state, want := range map[string]backend.Fault{
		"P0001": backend.FaultStatement, "40001": backend.FaultStatement, "40P01": backend.FaultStatement, "22012": backend.FaultStatement, "0A000": backend.FaultStatement, "28P01": backend.FaultAuth,
		"08006": backend.FaultTransport, "57P01": backend.FaultTransport, "40003": backend.FaultUnknown, "53200": backend.FaultUnknown, "XX000": backend.FaultUnknown,
		"25P02": backend.FaultStatement, "25P03": backend.FaultTransport, "25P04": backend.FaultTransport,
		"58030": backend.FaultUnknown, "HY000": backend.FaultUnknown, "00000": backend.FaultUnknown, "\x00\x00\x00\x00\x00": backend.FaultTransport, "p0001": backend.FaultTransport,
	} {
		e := adbc.Error{Code: adbc.StatusIO}
		copy(e.SqlState[:], state)
		require.Equal(t, want, faultOf(e), state)
		byState := want == backend.FaultStatement || want == backend.FaultAuth || endsConnection(state)
		for code, otherwise := range map[adbc.Status]backend.Fault{
			adbc.StatusInternal: backend.FaultUnknown, adbc.StatusNotImplemented: backend.FaultUnsupported, adbc.StatusInvalidState: backend.FaultStatement, adbc.StatusInvalidArgument: backend.FaultStatement,
		} {
			if e.Code = code; byState {
				otherwise = want
			}
			require.Equal(t, otherwise, faultOf(e), "%s: %v", state, code)
		}
		e.Code = adbc.StatusCancelled
		require.Equal(t, backend.FaultContext, faultOf(e), state)
		e.Code = adbc.StatusUnauthenticated
		require.Equal(t, backend.FaultAuth, faultOf(e), state)
	}
	flight := adbc.Error{Code: adbc.StatusInternal, VendorCode: int32(codes.ResourceExhausted), Msg: "[FlightSQL] sessions (ResourceExhausted; Open)"}
	require.Equal(t, backend.FaultLimit, faultOf(flight))
}

// driverNamed answers GetInfo with the name of a driver, and ends in err.
func driverNamed(name string, err error) func() (array.RecordReader, error) {
	return func() (array.RecordReader, error) {
		b := array.NewRecordBuilder(memory.DefaultAllocator, adbc.GetInfoSchema)
		defer b.Release()
		b.Field(0).(*array.Uint32Builder).Append(uint32(adbc.InfoDriverName))
		value := b.Field(1).(*array.DenseUnionBuilder)
		value.Append(0)
		value.Child(0).(*array.StringBuilder).Append(name)
		batch := b.NewRecordBatch()
		defer batch.Release()
		rows, made := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		return failingRows{rows, err}, made
	}
}

// failingRows are rows that end in err.
type failingRows struct {
	array.RecordReader
	err error
}

func (r failingRows) Err() error { return r.err }

// Whether a connection is one of the Flight SQL driver decides how its
// transactions are watched, so no open may succeed without knowing.
func TestAnOpenThatDoesNotLearnItsDriverFails(t *testing.T) {
	internal := errors.New("broken")
	for name, tc := range map[string]struct {
		getInfo   func() (array.RecordReader, error)
		late      bool // the open's context ends with the probe
		flightSQL bool
		fails     error
	}{
		"no GetInfo":             {},
		"another driver":         {getInfo: driverNamed("ADBC SQLite Driver", nil)},
		"Flight SQL":             {getInfo: driverNamed("ADBC Flight SQL Driver - Go", nil), flightSQL: true},
		"GetInfo fails":          {getInfo: func() (array.RecordReader, error) { return nil, internal }, fails: internal},
		"its rows fail":          {getInfo: driverNamed("", internal), fails: internal},
		"the context ends first": {getInfo: driverNamed("ADBC Flight SQL Driver - Go", nil), late: true, flightSQL: true, fails: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 20 { // which of two ready channels is taken is chance
					d := &stubborn{t: t, getInfo: tc.getInfo}
					ctx, cancel := context.WithCancel(t.Context())
					if tc.late {
						d.probed = cancel
					}
					c, err := OpenGeneric(ctx, d, GenericConfig{})
					cancel()
					synctest.Wait()
					if err == nil {
						require.Equal(t, tc.flightSQL, c.(*GenericConn).isFlightSQL)
						alone, err := c.(backend.TextCutter).CutsTexts(t.Context(), true, "")
						require.NoError(t, err)
						require.Equal(t, name == "another driver", alone, "SQLite's")
						require.NoError(t, c.Close())
					}
					if !tc.late || err != nil {
						require.ErrorIs(t, err, tc.fails)
					}
					require.Equal(t, d.opened.Load(), d.closed.Load())
				}
			})
		})
	}
}

func TestAFlightDriverUnderADriverManagerSaysWhatToUse(t *testing.T) {
	d := &stubborn{t: t, getInfo: driverNamed("ADBC Flight SQL Driver - Go", nil), noPartitions: true}
	_, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.Equal(t, backend.FaultUnsupported, backend.FaultIn(err))
	require.ErrorContains(t, err, "adbcpool.Open")
}

// A value of such a batch would panic in whoever reads it: the flattening of a driver's
// objects, too.
func TestABatchThatIsMalformedIsAnError(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 1 << 30, 1}))
		texts := array.MakeFromData(array.NewData(arrow.BinaryTypes.String, 2, []*memory.Buffer{nil, offsets, memory.NewBufferBytes([]byte("a"))}, nil, 0, 0))
		list := array.NewData(arrow.ListOf(arrow.StructOf()), 2, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{array.NewData(arrow.StructOf(), 1, []*memory.Buffer{nil}, nil, 0, 0)}, 0, 0)
		schema := arrow.NewSchema([]arrow.Field{{Name: "catalog_name", Type: texts.DataType()}, {Name: "catalog_db_schemas", Type: list.DataType()}}, nil)
		d.malformed = array.NewRecordBatch(schema, []arrow.Array{texts, array.MakeFromData(list)}, 2)
		defer d.malformed.Release()

		rows, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		_, err = rows.Next()
		require.ErrorContains(t, err, "malformed reply")
		require.Equal(t, backend.FaultUnknown, failure(t, err).Fault)
		rows.Close()
		_, err = c.Metadata(t.Context(), backend.MetadataRequest{Kind: backend.MetadataCatalogs}, backend.Call{})
		require.ErrorContains(t, err, "malformed reply")
		require.NoError(t, c.Lost())
	})
}

// A pool that is closed by force closes its connections beside their readers.
func TestABatchOutlivesTheCloseOfItsConnection(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		b := array.NewInt64Builder(mem)
		defer b.Release()
		b.AppendValues([]int64{1, 2, 3}, nil)
		column := b.NewArray()
		d.malformed = array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: column.DataType()}}, nil), []arrow.Array{column}, 3)
		column.Release()
		rows, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		d.malformed.Release()
		batch, err := rows.Next()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.EqualValues(t, 1, d.released.Load()-1) // beside that of the probe
		require.EqualValues(t, 1, batch.NumCols())
		require.EqualValues(t, 3, batch.Column(0).(*array.Int64).Value(2))
		_, err = rows.Next()
		require.ErrorIs(t, err, backend.ErrSessionLost)
		rows.Close()
	})
}
