package flightconn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// CheckParams refuses parameters whose number cannot be right. want is what the
// server says of them; without fields, or nil, it does not know.
//
// Their types are for the server to judge: what it declares for a placeholder
// is often a guess, and which types it converts only it knows. Refusing here
// what it would take is worse than one call more.
func CheckParams(want *arrow.Schema, params arrow.RecordBatch) error {
	if params.NumRows() == 0 {
		return errors.New("the parameters have no rows")
	}
	if params.NumCols() == 0 && params.NumRows() > 1 { // which servers take for none
		return fmt.Errorf("the parameters have %d rows and no column", params.NumRows())
	}
	if want == nil || want.NumFields() == 0 {
		return nil
	}
	if got := int(params.NumCols()); got != want.NumFields() {
		return fmt.Errorf("the statement takes %d parameters, not %d", want.NumFields(), got)
	}
	return checkParamNames(want, params.Schema())
}

// checkParamNames refuses columns that have the names of the parameters, but those of others. Parameters go by their position;
// SwanLake takes those of an INSERT by their names. Numbers are no names.
func checkParamNames(want, got *arrow.Schema) error {
	if !maySwapNames(want, got) {
		return nil
	}
	places, moved := make(map[string]int, want.NumFields()), -1
	for i, f := range want.Fields() {
		if _, err := strconv.Atoi(strings.TrimPrefix(f.Name, "$")); err == nil {
			return nil
		}
		places[f.Name] = i
	}
	for i, f := range got.Fields() {
		place, known := places[f.Name]
		if !known {
			return nil
		}
		delete(places, f.Name)
		if place != i {
			moved = i
		}
	}
	if moved < 0 || len(places) > 0 {
		return nil
	}
	return fmt.Errorf("parameter %d of the statement is %q, and the column %q: parameters go by their position", moved+1, want.Field(moved).Name, got.Field(moved).Name)
}

// maySwapNames reports whether the first column that has not its parameter's name has that of another. It makes nothing,
// since every execution asks.
func maySwapNames(want, got *arrow.Schema) bool {
	for i := range want.NumFields() {
		name := got.Field(i).Name
		if name != want.Field(i).Name {
			return want.HasField(name)
		}
	}
	return false
}

// OwnNames is params under the names by which servers made with DataFusion know them, which tell those with a mark ($1, $id):
// their numbers or names alone. Columns that are called otherwise are those of their position. The caller must Release it.
func OwnNames(told *arrow.Schema, params arrow.RecordBatch) arrow.RecordBatch {
	names, changed := paramNames(told, params.Schema())
	if !changed {
		params.Retain()
		return params
	}
	fields := params.Schema().Fields()
	for i := range fields {
		fields[i].Name = names[i]
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), params.Columns(), params.NumRows())
}

// paramNames are the names of OwnNames.
func paramNames(told, got *arrow.Schema) (names []string, changed bool) {
	const mark = "$"
	if told == nil || told.NumFields() == 0 || told.NumFields() != got.NumFields() || !strings.HasPrefix(told.Field(0).Name, mark) {
		return nil, false
	}
	names = make([]string, got.NumFields())
	numbered := true // and the caller does not number them
	for i := range names {
		_, notNumber := strconv.Atoi(strings.TrimPrefix(told.Field(i).Name, mark))
		_, notOwn := strconv.Atoi(strings.TrimPrefix(got.Field(i).Name, mark))
		numbered = numbered && notNumber == nil && notOwn != nil
	}
	for i := range names {
		switch name := got.Field(i).Name; {
		case numbered:
			names[i] = strconv.Itoa(i + 1)
		case told.HasField(name):
			names[i] = strings.TrimPrefix(name, mark)
		default:
			names[i] = name
		}
		changed = changed || names[i] != got.Field(i).Name
	}
	return names, changed
}

// CheckSendable refuses a schema of which Arrow's IPC format cannot carry the
// values: a field has one dictionary, so of a dictionary whose values are
// themselves encoded by one, only the indices would be sent, and the server
// would take them for the values. Arrow's writers, that of Go and that of C++,
// do not refuse it. Both backends ask this before they send parameters or rows.
func CheckSendable(schema *arrow.Schema) error {
	for _, f := range schema.Fields() {
		if err := checkSendableType(f.Type); err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
	}
	return nil
}

// checkSendableType looks at a type and at all that it is made of.
func checkSendableType(t arrow.DataType) error {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return checkSendableType(t.StorageType())
	case *arrow.DictionaryType:
		if isDictionary(t.ValueType) {
			return fmt.Errorf("%v cannot be sent: the values of a dictionary cannot be dictionary-encoded themselves", t)
		}
		return checkSendableType(t.ValueType)
	case arrow.NestedType:
		for _, f := range t.Fields() {
			if err := checkSendableType(f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

// isDictionary looks through extension types.
func isDictionary(t arrow.DataType) bool {
	if e, ok := t.(arrow.ExtensionType); ok {
		return isDictionary(e.StorageType())
	}
	return t.ID() == arrow.DICTIONARY
}

// transportHeaders are gRPC's and HTTP's own. gRPC drops most of them without
// a word; the others break the transport.
var transportHeaders = []string{"connection", "content-type", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "user-agent"}

// notPassedOn is what the metadata of a caller's context may have of those who have called it: their
// credentials, and what holds for their connection and their request.
var notPassedOn = []string{authorizationKey, cookieKey, "proxy-authorization", "grpc-accept-encoding", "content-length"}

// checkCallHeaders is CheckHeaders for those of one call, which must not say
// who the connection is: what is done for the call later, such as its cancel
// and the cleaning of the session, would be done by somebody else. They are
// refused before anything is sent, as the caller's fault.
func (cfg *Config) checkCallHeaders(headers metadata.MD) error {
	if len(headers) == 0 {
		return nil
	}
	errs := []error{CheckHeaders(headers)}
	for name := range headers {
		switch lower := strings.ToLower(name); lower {
		case authorizationKey, cookieKey:
			errs = append(errs, fmt.Errorf("%q is the connection's own for all its life: set Config.Auth, and make a pool for each credential", lower))
		case strings.ToLower(cfg.SessionHeader):
			errs = append(errs, fmt.Errorf("%q is Config.SessionHeader, which names the connection's session", lower))
		}
	}
	return errjoin.Join(errs...)
}

// CheckHeaders finds the headers that cannot be sent: gRPC would drop them, or
// fail the call, or the transport, with words about itself. Upper case is as
// good as lower. It says what is wrong with each, joined, and nil where nothing
// is. Values are not shown: they may be credentials.
func CheckHeaders(headers metadata.MD) error {
	var errs []error
	for name, values := range headers {
		lower := strings.ToLower(name)
		switch {
		case lower == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
			errs = append(errs, fmt.Errorf("%q is no header name: letters, digits and - _ . make one", name))
		case strings.HasPrefix(lower, "grpc-") || slices.Contains(transportHeaders, lower):
			errs = append(errs, fmt.Errorf("%q is reserved by gRPC and HTTP", name))
		}
		if strings.HasSuffix(lower, "-bin") {
			continue // any bytes
		}
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				errs = append(errs, fmt.Errorf("the value of %q has characters that are not printable ASCII; name it %s-bin to send any bytes", name, lower))
				break
			}
		}
	}
	return errjoin.Join(errs...)
}

// basicAuth is a user and password as a header has them.
func basicAuth(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}
