package adbcconn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// kinds are the driver's connection and the native one below it.
func kinds(c backend.Conn) map[string]backend.Conn {
	return map[string]backend.Conn{"driver": c, "native": c.(*Conn).Conn}
}

func TestIngestInATransactionInEveryModeAndCompression(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, _ server, c backend.Conn) {
		for kind, conn := range kinds(c) {
			for _, compression := range []backend.IngestCompression{backend.IngestUncompressed, backend.IngestLZ4, backend.IngestZSTD} {
				for _, mode := range []backend.IngestMode{backend.IngestCreate, backend.IngestAppend, backend.IngestReplace, backend.IngestCreateAppend} {
					name := fmt.Sprintf("%s_%d_%d", kind, compression, mode)
					before := 0
					if mode != backend.IngestCreate {
						_, err := conn.Update(t.Context(), "CREATE TABLE "+name+" (n BIGINT)", backend.Call{})
						require.NoError(t, err)
						_, err = conn.Update(t.Context(), "INSERT INTO "+name+" VALUES (7)", backend.Call{})
						require.NoError(t, err)
						before = 1
					}
					load := func(commit bool) {
						tx, err := conn.Begin(t.Context())
						require.NoError(t, err)
						batch := int64s(1, 2, 3)
						rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
						require.NoError(t, err)
						defer rows.Release()
						n, err := conn.Ingest(t.Context(), rows, backend.IngestOptions{Table: name, Mode: mode, Compression: compression}, backend.Call{Tx: tx})
						require.NoError(t, err, name)
						require.EqualValues(t, 3, n, name)
						require.NoError(t, conn.EndTx(t.Context(), tx, commit))
					}
					load(false)
					if before > 0 {
						require.Equal(t, before, count(t, conn, "SELECT * FROM "+name), "%s: rolled back", name)
					}
					load(true)
					want := 3
					if mode == backend.IngestAppend || mode == backend.IngestCreateAppend {
						want += before
					}
					require.Equal(t, want, count(t, conn, "SELECT * FROM "+name), "%s: committed", name)
				}
			}
		}
	})
}

func TestATableThatChangesUnderAPreparedStatementIsNoError(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		inBubble(t, profile, func(t *testing.T, _ server, c backend.Conn) {
			for kind, conn := range kinds(c) {
				table := "altered_" + kind
				do := func(sql string) {
					_, err := conn.Update(t.Context(), sql, backend.Call{})
					require.NoError(t, err, "%s on %s: %s", kind, profile.Name, sql)
				}
				columns := func(s backend.Stream, err error) (names []string) {
					require.NoError(t, err, "%s on %s", kind, profile.Name)
					defer s.Close()
					batch, err := s.Next()
					require.NoError(t, err, "%s on %s", kind, profile.Name)
					require.True(t, batch.Schema().Equal(s.Schema()), "%s on %s", kind, profile.Name)
					for _, f := range batch.Schema().Fields() {
						names = append(names, f.Name)
					}
					return names
				}
				do("CREATE TABLE " + table + " (n BIGINT)")
				do("INSERT INTO " + table + " VALUES (1)")
				sql := "SELECT * FROM " + table
				stmt, err := conn.Prepare(t.Context(), sql, backend.Call{})
				require.NoError(t, err)
				require.Equal(t, []string{"n"}, columns(stmt.Query(t.Context(), nil, backend.Call{})))
				require.Equal(t, []string{"n"}, columns(conn.Query(t.Context(), sql, backend.Call{})))

				do("DROP TABLE " + table)
				do("CREATE TABLE " + table + " (n BIGINT, s VARCHAR)")
				do("INSERT INTO " + table + " VALUES (1, 'x')")
				require.Equal(t, []string{"n", "s"}, columns(conn.Query(t.Context(), sql, backend.Call{})))
				require.Equal(t, []string{"n", "s"}, columns(stmt.Query(t.Context(), nil, backend.Call{})))
				require.NoError(t, stmt.Close(t.Context()))
			}
		})
	}
}

func TestTheDriverTellsOfProgress(t *testing.T) {
	profile := testserver.Strict()
	profile.Polls = 3
	inBubble(t, profile, func(t *testing.T, _ server, c backend.Conn) {
		for kind, conn := range kinds(c) {
			var heard []float64
			s, err := conn.Query(t.Context(), "SELECT 1", backend.Call{Progress: func(fraction float64, _ bool) { heard = append(heard, fraction) }})
			require.NoError(t, err, kind)
			got, err := ints(t, s)
			require.NoError(t, err, kind)
			require.Equal(t, []int64{1}, got, kind)
			require.Equal(t, []float64{0.25, 0.5, 0.75, 1}, heard, kind)
		}
	})
}

func TestOffsetsThatPointNowhereAreAnErrorThroughTheDriverToo(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		_, err := c.Update(t.Context(), "CREATE TABLE texts (s VARCHAR)", backend.Call{})
		require.NoError(t, err)
		_, err = c.Update(t.Context(), "INSERT INTO texts VALUES ('a'), ('b'), ('c')", backend.Call{})
		require.NoError(t, err)
		s.Faults().Set(testserver.Fault{On: testserver.OnBatch, Do: testserver.Rewrite(func(d *flight.FlightData) {
			d.DataBody = bytes.Clone(d.DataBody)
			binary.LittleEndian.PutUint32(d.DataBody[4:], 1<<30) // the end of the first text
		})})
		for kind, conn := range kinds(c) {
			rows, err := conn.Query(t.Context(), "SELECT * FROM texts", backend.Call{})
			require.NoError(t, err, kind)
			_, err = rows.Next()
			require.ErrorContains(t, err, "offsets", kind)
			require.Equal(t, backend.FaultUnknown, failure(t, err).Fault, kind)
			rows.Close()
		}
		s.Faults().Clear()
	})
}

// TestADictionaryOfDictionariesIsNotSent: its inner indices would be stored as
// the values.
func TestADictionaryOfDictionariesIsNotSent(t *testing.T) {
	inner := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.PrimitiveTypes.Int32}
	outer := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: inner}
	values := array.NewDictionaryBuilder(memory.DefaultAllocator, inner).(*array.Int32DictionaryBuilder)
	indices := array.NewInt32Builder(memory.DefaultAllocator)
	for i, v := range []int32{70, 80, 70} {
		require.NoError(t, values.Append(v))
		indices.Append(int32(i))
	}
	nested := array.NewDictionaryArray(outer, indices.NewArray(), values.NewArray())
	within, err := array.NewStructArray([]arrow.Array{nested}, []string{"a"})
	require.NoError(t, err)
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		_, err := c.Update(t.Context(), "CREATE TABLE nested (n BIGINT)", backend.Call{})
		require.NoError(t, err)
		for kind, conn := range kinds(c) {
			for _, column := range []arrow.Array{nested, within} {
				schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: column.DataType(), Nullable: true}}, nil)
				batch := array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))
				rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
				require.NoError(t, err)
				_, err = conn.Ingest(t.Context(), rows, backend.IngestOptions{Table: "nested"}, backend.Call{})
				require.ErrorContains(t, err, `column "n"`, kind)
				require.ErrorContains(t, err, "cannot be sent", kind)
				require.Equal(t, backend.FaultUsage, failure(t, err).Fault, kind)
				require.True(t, failure(t, err).Unsent, kind)

				stmt, err := conn.Prepare(t.Context(), "INSERT INTO nested VALUES (?)", backend.Call{})
				require.NoError(t, err)
				_, err = stmt.Update(t.Context(), batch, backend.Call{})
				require.ErrorContains(t, err, "cannot be sent", kind)
				require.Equal(t, backend.FaultUsage, failure(t, err).Fault, kind)
				require.NoError(t, stmt.Close(t.Context()))
			}
			require.Zero(t, count(t, conn, "SELECT * FROM nested"), kind)
		}
	})
}

// A server may refuse a later part of one batch: the session must know that there are several.
func TestABatchThatIsSentInPartsIsTold(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, _ server, c backend.Conn) {
		for kind, conn := range kinds(c) {
			for _, rows := range []int{1, 2} {
				values := array.NewStringBuilder(memory.DefaultAllocator)
				for range rows {
					values.Append(string(bytes.Repeat([]byte("a"), 3<<20)))
				}
				schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
				reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{values.NewArray()}, int64(rows))})
				require.NoError(t, err)
				op := &backend.Operation{}
				_, err = conn.Ingest(t.Context(), reader, backend.IngestOptions{Table: fmt.Sprintf("parts_%s_%d", kind, rows)}, backend.Call{Op: op})
				reader.Release()
				require.NoError(t, err)
				require.Equal(t, rows > 1, op.IsSplit(), "%s, %d rows", kind, rows)
			}
		}
	})
}
