package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func (s *stubbornStatement) SetOption(string, string) error { return nil }

func (s *stubbornStatement) BindStream(_ context.Context, rows array.RecordReader) error {
	s.stream = rows
	return nil
}

// load reads what is bound as a driver in C does: no defer of its runs where a reader does not return.
func (s *stubbornStatement) load() (n int64, err error) {
	s.driver.loads++
	if readsOn := s.driver.readsOn; readsOn != nil {
		go readsOn(s.stream)
		return -1, adbc.Error{Code: adbc.StatusInternal, Msg: "no stage"}
	}
	for s.stream.Next() {
		n += s.stream.RecordBatch().NumRows()
	}
	err = s.stream.Err()
	s.driver.loadsEnded++
	if err != nil { // what the failure of a C stream is to ADBC's drivers
		return -1, adbc.Error{Code: adbc.StatusIO, Msg: "(5) Input/output error: " + err.Error()}
	}
	return n, nil
}

// breaking is a reader of a user's that does not return from its third Next, or from another method then.
type breaking struct {
	array.RecordReader
	n             int
	next, of, err func()
}

func (b *breaking) at(do func()) {
	if b.n == 3 && do != nil {
		do()
	}
}

func (b *breaking) Next() bool {
	b.n++
	b.at(b.next)
	return (b.n < 3 || b.of != nil) && b.RecordReader.Next()
}

func (b *breaking) RecordBatch() arrow.RecordBatch {
	b.at(b.of)
	return b.RecordReader.RecordBatch()
}

func (b *breaking) Err() error {
	b.at(b.err)
	return b.RecordReader.Err()
}

// A panic that goes through a driver in C, or a Goexit, leaves there what was under way: SQLite kept its
// database locked.
func TestAReaderThatDoesNotReturnDoesNotGoThroughItsDriver(t *testing.T) {
	for how, end := range map[string]func(){"panic": func() { panic("reader") }, "Goexit": runtime.Goexit} {
		for where, rows := range map[string]*breaking{"Next": {next: end}, "RecordBatch": {of: end}, "Err": {err: end}} {
			t.Run(how+" in "+where, func(t *testing.T) {
				withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
					batch := int64s(1)
					defer batch.Release()
					inner, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch, batch})
					require.NoError(t, err)
					rows.RecordReader = inner
					var told any = "nothing"
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() {
							if p := recover(); p != nil {
								told = p
							}
						}()
						told = nil
						_, err = c.Ingest(t.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
						told = errors.Join(err, errors.New("returned"))
					}()
					<-done
					require.Equal(t, map[string]any{"panic": "reader", "Goexit": nil}[how], told)
					require.Equal(t, 1, d.loads)
					require.Equal(t, 1, d.loadsEnded, "it was told of the end")
				})
			})
		}
	}
}

// The Snowflake driver's goroutine does so where the stage cannot be made. The rows are their caller's again then.
func TestADriverThatHasReturnedReadsNoMoreRows(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		read := make(chan int)
		d.readsOn = func(rows array.RecordReader) {
			time.Sleep(time.Second)
			n := 0
			for rows.Next() {
				n++
			}
			read <- n
		}
		batch := int64s(1)
		defer batch.Release()
		_, err := c.Ingest(t.Context(), rowsOf(t, batch, batch), backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorContains(t, err, "no stage")
		require.Zero(t, <-read)
	})
}

type failing struct {
	array.RecordReader
	err error
}

func (failing) Next() bool   { return false }
func (f failing) Err() error { return f.err }

// The connection has no part in it. It was taken for lost, and its server for unreachable.
func TestAReaderThatFailsIsNoFailureOfItsDriversConnection(t *testing.T) {
	withStubborn(t, func(t *testing.T, _ *stubborn, c backend.Conn) {
		batch := int64s(1)
		defer batch.Release()
		inner, err := array.NewRecordReader(batch.Schema(), nil)
		require.NoError(t, err)
		refused := errors.New("the reader's")
		_, err = c.Ingest(t.Context(), failing{inner, refused}, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorIs(t, err, refused)
		require.ErrorContains(t, err, "Input/output error")
		require.Equal(t, backend.FaultUnknown, failure(t, err).Fault)
		require.False(t, failure(t, err).Unsent)
		require.NoError(t, c.Lost())
	})
}

// Of what a driver in C fails with while its rows are read there is a number and a text. Which of ADBC's codes the
// number stands for is not told: most stand for several.
func TestWhatTheRowsOfADriverInCFailWithIsADBCs(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		d.fails = fmt.Errorf("%w: %s", syscall.EIO, "[libpq] ERROR: division by zero")
		rows, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		_, err = ints(t, rows)
		var value adbc.Error
		require.ErrorAs(t, err, &value)
		require.Contains(t, value.Msg, "division by zero")
		require.ErrorAs(t, err, new(*adbc.Error))
		require.ErrorIs(t, err, syscall.EIO)
		require.Equal(t, backend.FaultUnknown, failure(t, err).Fault)
	})
}
