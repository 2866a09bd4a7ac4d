package adbcpool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"

	"github.com/flightpool/flightpool/internal/driverapi"
)

// OptionConstraints is the option of a connection that says whether GetObjects
// lists constraints, for which it makes two calls a table: "true" (the default)
// or "false". A database takes it for its connections.
const OptionConstraints = "flightpool.connection.constraints"

// SetOption is part of adbc.PostInitOptions.
func (c *connection) SetOption(key, value string) error {
	ctx, stop := driverapi.OwnContext(c.baseCtx)
	defer stop()
	return c.setOption(ctx, key, value)
}

func (c *connection) setOption(ctx context.Context, key, value string) error {
	if c.closed {
		return errConnectionClosed
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionRPCCallHeaderPrefix); ok {
		return setHeader(c.headers, name, value)
	}
	switch key {
	case OptionConstraints:
		on, err := parseBool(key, value)
		if err == nil {
			c.omitConstraints = !on
		}
		return err
	case adbc.OptionKeyReadOnly:
		return requireValue(adbc.OptionValueDisabled, key, value)
	case adbc.OptionKeyIsolationLevel:
		return requireValue(string(adbc.LevelDefault), key, value)
	case adbc.OptionKeyAutoCommit:
		on, err := parseBool(key, value)
		if err != nil {
			return err
		}
		return c.setAutocommit(ctx, on)
	case adbc.OptionKeyCurrentCatalog:
		return c.setSessionOption(ctx, "catalog", value)
	case adbc.OptionKeyCurrentDbSchema:
		return c.setSessionOption(ctx, "schema", value)
	}
	name, v, known, err := parseSessionOption(key, value)
	switch {
	case err != nil:
		return err
	case known:
		return c.setSessionOption(ctx, name, v)
	}
	return notImplemented("connection option " + key)
}

// sessionOptions are the kinds of session options that ADBC's Flight SQL driver has, by how their keys begin.
var sessionOptions = []struct {
	prefix string
	parse  func(key, value string) (any, error)
}{
	{flightsql.OptionSessionOptionPrefix, func(_, value string) (any, error) { return value, nil }},
	{flightsql.OptionBoolSessionOptionPrefix, func(key, value string) (any, error) { return parseBool(key, value) }},
	{flightsql.OptionStringListSessionOptionPrefix, parseList},
	{flightsql.OptionEraseSessionOptionPrefix, func(_, _ string) (any, error) { return nil, nil }},
}

// parseSessionOption reads a session option; known says that key is one.
func parseSessionOption(key, value string) (name string, v any, known bool, err error) {
	for _, kind := range sessionOptions {
		if name, known = strings.CutPrefix(key, kind.prefix); known {
			v, err = kind.parse(key, value)
			return name, v, true, err
		}
	}
	return "", nil, false, nil
}

func parseBool(key, value string) (bool, error) {
	switch value {
	case adbc.OptionValueEnabled:
		return true, nil
	case adbc.OptionValueDisabled:
		return false, nil
	default:
		return false, newADBCError(adbc.StatusInvalidArgument, key+": "+value+" is neither true nor false")
	}
}

func parseList(key, value string) (any, error) {
	var list []string
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, newADBCError(adbc.StatusInvalidArgument, key+": is no JSON list of strings: "+err.Error())
	}
	return list, nil
}

// setSessionOption sets a session option, until the connection is closed: the next
// borrower of the session does not see it.
func (c *connection) setSessionOption(ctx context.Context, name string, value any) error {
	return toADBC(c.handle.SetOption(ctx, name, value))
}

// SetOptionBytes is part of adbc.GetSetOptions.
func (c *connection) SetOptionBytes(key string, _ []byte) error {
	return notImplemented("connection option " + key)
}

// SetOptionInt is part of adbc.GetSetOptions.
func (c *connection) SetOptionInt(key string, value int64) error {
	return c.setNumber(key, value)
}

// SetOptionDouble is part of adbc.GetSetOptions.
func (c *connection) SetOptionDouble(key string, value float64) error {
	return c.setNumber(key, value)
}

func (c *connection) setNumber(key string, value any) error {
	if c.closed {
		return errConnectionClosed
	}
	name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix)
	if !ok {
		return notImplemented("connection option " + key)
	}
	ctx, stop := driverapi.OwnContext(c.baseCtx)
	defer stop()
	return c.setSessionOption(ctx, name, value)
}

// GetOption is part of adbc.GetSetOptions.
func (c *connection) GetOption(key string) (string, error) {
	if strings.HasPrefix(key, flightsql.OptionRPCCallHeaderPrefix) {
		return headerOption(c.headers, "connection", key)
	}
	switch key {
	case adbc.OptionKeyAutoCommit:
		return formatBool(!c.autocommitOff), nil
	case OptionConstraints:
		return formatBool(!c.omitConstraints), nil
	case adbc.OptionKeyReadOnly:
		return adbc.OptionValueDisabled, nil
	case adbc.OptionKeyIsolationLevel:
		return string(adbc.LevelDefault), nil
	case flightsql.OptionSessionOptions:
		all, err := c.sessionOptions()
		if err != nil {
			return "", err
		}
		out, err := json.Marshal(all)
		if err != nil {
			return "", newADBCError(adbc.StatusInternal, err.Error())
		}
		return string(out), nil
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionStringListSessionOptionPrefix); ok {
		list, err := sessionOption[[]string](c, name)
		if err != nil {
			return "", err
		}
		out, err := json.Marshal(list)
		return string(out), err
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionBoolSessionOptionPrefix); ok {
		on, err := sessionOption[bool](c, name)
		return formatBool(on), err
	}
	name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix)
	switch key {
	case adbc.OptionKeyCurrentCatalog:
		name, ok = "catalog", true
	case adbc.OptionKeyCurrentDbSchema:
		name, ok = "schema", true
	}
	if !ok {
		return "", unknownOption("connection", key)
	}
	return sessionOption[string](c, name)
}

// GetOptionBytes is part of adbc.GetSetOptions.
func (c *connection) GetOptionBytes(key string) ([]byte, error) {
	return nil, unknownOption("connection", key)
}

// GetOptionInt is part of adbc.GetSetOptions.
func (c *connection) GetOptionInt(key string) (int64, error) { return numberOption[int64](c, key) }

// GetOptionDouble is part of adbc.GetSetOptions.
func (c *connection) GetOptionDouble(key string) (float64, error) {
	return numberOption[float64](c, key)
}

func numberOption[T int64 | float64](c *connection, key string) (none T, err error) {
	name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix)
	if !ok {
		return none, unknownOption("connection", key)
	}
	return sessionOption[T](c, name)
}

func (c *connection) sessionOptions() (map[string]any, error) {
	if c.closed {
		return nil, errConnectionClosed
	}
	ctx, stop := driverapi.OwnContext(c.baseCtx)
	defer stop()
	all, err := c.handle.Options(ctx)
	return all, toADBC(err)
}

// sessionOption is a session option of type T.
func sessionOption[T any](c *connection, name string) (T, error) {
	var none T
	all, err := c.sessionOptions()
	if err != nil {
		return none, err
	}
	v, ok := all[name].(T)
	if !ok {
		return none, newADBCError(adbc.StatusNotFound, "the session has no option "+name+" of that type")
	}
	return v, nil
}
