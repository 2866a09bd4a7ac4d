//go:build duckdb_arrow

package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// program is a sequence of calls that every client makes. Its text form, one
// step a line, is that of the scripts in testdata.
type program []step

// step is one call.
//
//	begin | commit | rollback      transactions
//	beside SQL                     by another program, outside of transactions
//	query SQL | update SQL         statements; with "… params" before it, bound
//	ingest T                       bulk load of the "… params", whose columns have names
//	prepare N SQL | run-query N | run-update N | close N
type step struct {
	verb string
	how  []string // flags after the verb, see the constants
	name string   // of a prepared statement
	sql  string
	with *bound
}

const (
	ordered   = "ordered"   // the rows have an order, which must be kept
	stateless = "stateless" // the pool is called, not the session
	execute   = "execute"   // by Execute, which takes statements of both kinds
	asArgs    = "args"      // the parameters are Go values: by our pools alone, outside of transactions
)

// bound is the parameters of a statement.
type bound struct {
	Columns []string    `json:"columns,omitempty"` // names, of a bulk load
	Types   []string    `json:"types"`
	Rows    [][]*string `json:"rows"` // nil is NULL
}

var paramTypes = map[string]arrow.DataType{
	"null": arrow.Null, "bool": arrow.FixedWidthTypes.Boolean,
	"int8": arrow.PrimitiveTypes.Int8, "int16": arrow.PrimitiveTypes.Int16, "int32": arrow.PrimitiveTypes.Int32, "int64": arrow.PrimitiveTypes.Int64,
	"uint8": arrow.PrimitiveTypes.Uint8, "uint16": arrow.PrimitiveTypes.Uint16, "uint32": arrow.PrimitiveTypes.Uint32, "uint64": arrow.PrimitiveTypes.Uint64,
	"float32": arrow.PrimitiveTypes.Float32, "float64": arrow.PrimitiveTypes.Float64,
	"utf8": arrow.BinaryTypes.String, "large_utf8": arrow.BinaryTypes.LargeString, "binary": arrow.BinaryTypes.Binary,
	"date32": arrow.FixedWidthTypes.Date32, "time64us": arrow.FixedWidthTypes.Time64us,
	"timestamp_us": &arrow.TimestampType{Unit: arrow.Microsecond}, "timestamp_us_utc": arrow.FixedWidthTypes.Timestamp_us,
	"decimal(10,2)": &arrow.Decimal128Type{Precision: 10, Scale: 2}, "decimal(38,10)": &arrow.Decimal128Type{Precision: 38, Scale: 10},
	"list<int64>":         arrow.ListOf(arrow.PrimitiveTypes.Int64),
	"dictionary<utf8>":    &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
	"struct<a:int32>":     arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}),
	"month_day_nano":      arrow.FixedWidthTypes.MonthDayNanoInterval,
	"fixed_size_binary16": &arrow.FixedSizeBinaryType{ByteWidth: 16},
}

// batch makes the Arrow batch, nil without parameters.
func (b *bound) batch() (arrow.RecordBatch, error) {
	if b == nil {
		return nil, nil
	}
	fields := make([]arrow.Field, len(b.Types))
	for i, name := range b.Types {
		t, ok := paramTypes[name]
		if !ok {
			return nil, fmt.Errorf("no parameter type %q", name)
		}
		fields[i] = arrow.Field{Name: fmt.Sprint(i + 1), Type: t, Nullable: true}
		if len(b.Columns) > i {
			fields[i].Name = b.Columns[i]
		}
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer builder.Release()
	for _, row := range b.Rows {
		for i, v := range row {
			if v == nil {
				builder.Field(i).AppendNull()
			} else if err := builder.Field(i).AppendValueFromString(*v); err != nil {
				return nil, fmt.Errorf("%s %q: %w", b.Types[i], *v, err)
			}
		}
	}
	return builder.NewRecordBatch(), nil
}

func (s step) is(flag string) bool { return slices.Contains(s.how, flag) }

func (s step) String() string {
	words := []string{strings.Join(append([]string{s.verb}, s.how...), ":")}
	if s.name != "" {
		words = append(words, s.name)
	}
	if s.sql != "" {
		words = append(words, s.sql)
	}
	line := strings.Join(words, " ")
	if s.with != nil {
		text, _ := json.Marshal(s.with) // it has strings and nulls only
		line += "\n  with " + string(text)
	}
	return line
}

func (p program) String() string {
	lines := make([]string, len(p))
	for i, s := range p {
		lines[i] = s.String()
	}
	return strings.Join(lines, "\n") + "\n"
}

// parse reads the text form. Lines that begin with # are comments.
func parse(text string) (program, error) {
	var p program
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "  with "):
			if len(p) == 0 {
				return nil, fmt.Errorf("parameters without a step: %s", line)
			}
			with := &bound{}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "  with ")), with); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			p[len(p)-1].with = with
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		flags := strings.Split(word, ":")
		s := step{verb: flags[0], sql: rest}
		if len(flags) > 1 {
			s.how = flags[1:]
		}
		switch s.verb {
		case "begin", "commit", "rollback", "query", "update", "beside":
		case "prepare", "run-query", "run-update", "close", "ingest":
			s.name, s.sql, _ = strings.Cut(rest, " ")
		default:
			return nil, fmt.Errorf("no step %q", line)
		}
		p = append(p, s)
	}
	return p, nil
}
