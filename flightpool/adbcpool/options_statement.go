package adbcpool

import (
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// OptionRoute is the option of a statement that says how ExecuteQuery sends its
// text: "auto" (the default), "query" or "update", as flightpool.Route does.
const OptionRoute = "flightpool.statement.route"

var routes = map[string]flightpool.Route{"auto": flightpool.RouteAuto, "query": flightpool.RouteQuery, "update": flightpool.RouteUpdate}

var ingestModes = map[string]backend.IngestMode{
	adbc.OptionValueIngestModeCreate:       backend.IngestCreate,
	adbc.OptionValueIngestModeAppend:       backend.IngestAppend,
	adbc.OptionValueIngestModeReplace:      backend.IngestReplace,
	adbc.OptionValueIngestModeCreateAppend: backend.IngestCreateAppend,
}

// SetOption is part of adbc.Statement.
func (s *statement) SetOption(key, value string) error {
	if s.closed {
		return errStatementClosed
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionRPCCallHeaderPrefix); ok {
		return setHeader(s.headers, name, value)
	}
	var err error
	switch key {
	case OptionRoute:
		s.route, err = oneOf(routes, key, value, s.route)
	case adbc.OptionKeyIngestTargetTable:
		return s.setTask("", value)
	case adbc.OptionKeyIngestMode:
		s.ingest.Mode, err = oneOf(ingestModes, key, value, s.ingest.Mode)
	case adbc.OptionValueIngestTargetCatalog:
		s.ingest.Catalog = value
	case adbc.OptionValueIngestTargetDBSchema:
		s.ingest.Schema = value
	case adbc.OptionValueIngestTemporary:
		var on bool
		if on, err = parseBool(key, value); err == nil {
			s.ingest.Temporary = on
		}
	case adbc.OptionKeyIncremental:
		return requireValue(adbc.OptionValueDisabled, key, value)
	default:
		return notImplemented("statement option " + key)
	}
	return err
}

// GetOption is part of adbc.GetSetOptions.
func (s *statement) GetOption(key string) (string, error) {
	if s.closed {
		return "", errStatementClosed
	}
	switch key {
	case OptionRoute:
		return nameOf(routes, s.route), nil
	case adbc.OptionKeyIngestTargetTable:
		return s.ingest.Table, nil
	case adbc.OptionKeyIngestMode:
		return nameOf(ingestModes, s.ingest.Mode), nil
	case adbc.OptionValueIngestTargetCatalog:
		return s.ingest.Catalog, nil
	case adbc.OptionValueIngestTargetDBSchema:
		return s.ingest.Schema, nil
	case adbc.OptionValueIngestTemporary:
		return formatBool(s.ingest.Temporary), nil
	case adbc.OptionKeyIncremental:
		return adbc.OptionValueDisabled, nil
	}
	if strings.HasPrefix(key, flightsql.OptionRPCCallHeaderPrefix) {
		return headerOption(s.headers, "statement", key)
	}
	return "", unknownOption("statement", key)
}

// oneOf is the value that a name stands for, or what it was.
func oneOf[T comparable](names map[string]T, key, name string, was T) (T, error) {
	v, ok := names[name]
	if !ok {
		return was, newADBCError(adbc.StatusInvalidArgument, key+": "+name+" is not known")
	}
	return v, nil
}

func nameOf[T comparable](names map[string]T, value T) string {
	for name, v := range names {
		if v == value {
			return name
		}
	}
	return ""
}

// requireValue takes the one value that an option can have.
func requireValue(want, key, value string) error {
	if value != want {
		return notImplemented(key + " other than " + want)
	}
	return nil
}

func formatBool(on bool) string {
	if on {
		return adbc.OptionValueEnabled
	}
	return adbc.OptionValueDisabled
}
