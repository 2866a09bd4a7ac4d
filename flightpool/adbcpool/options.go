package adbcpool

import (
	"encoding/json"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
)

// SetOption is part of adbc.PostInitOptions.
func (c *connection) SetOption(key, value string) error {
	if c.closed {
		return errConnectionClosed
	}
	switch key {
	case adbc.OptionKeyAutoCommit:
		on, err := parseBool(key, value)
		if err != nil {
			return err
		}
		return c.setAutocommit(on)
	case adbc.OptionKeyCurrentCatalog:
		return c.setSession("catalog", value)
	case adbc.OptionKeyCurrentDbSchema:
		return c.setSession("schema", value)
	}
	for _, kind := range []struct {
		prefix string
		parse  func(key, value string) (any, error)
	}{
		{flightsql.OptionSessionOptionPrefix, func(_, value string) (any, error) { return value, nil }},
		{flightsql.OptionBoolSessionOptionPrefix, func(key, value string) (any, error) { return parseBool(key, value) }},
		{flightsql.OptionStringListSessionOptionPrefix, parseList},
		{flightsql.OptionEraseSessionOptionPrefix, func(_, _ string) (any, error) { return nil, nil }},
	} {
		if name, ok := strings.CutPrefix(key, kind.prefix); ok {
			v, err := kind.parse(key, value)
			if err != nil {
				return err
			}
			return c.setSession(name, v)
		}
	}
	return notImplemented("connection option " + key)
}

func parseBool(key, value string) (bool, error) {
	switch value {
	case adbc.OptionValueEnabled:
		return true, nil
	case adbc.OptionValueDisabled:
		return false, nil
	default:
		return false, failure(adbc.StatusInvalidArgument, key+": "+value+" is neither true nor false")
	}
}

func parseList(key, value string) (any, error) {
	var list []string
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, failure(adbc.StatusInvalidArgument, key+": is no JSON list of strings: "+err.Error())
	}
	return list, nil
}

// setSession sets a session option, until the connection is closed: the next
// borrower of the session does not see it.
func (c *connection) setSession(name string, value any) error {
	ctx, stop := c.bounded()
	defer stop()
	return toADBC(c.s.SetOption(ctx, name, value))
}

// SetOptionBytes is part of adbc.GetSetOptions.
func (c *connection) SetOptionBytes(key string, _ []byte) error {
	return notImplemented("connection option " + key)
}

// SetOptionInt is part of adbc.GetSetOptions.
func (c *connection) SetOptionInt(key string, value int64) error {
	if name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix); ok && !c.closed {
		return c.setSession(name, value)
	}
	return notImplemented("connection option " + key)
}

// SetOptionDouble is part of adbc.GetSetOptions.
func (c *connection) SetOptionDouble(key string, value float64) error {
	if name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix); ok && !c.closed {
		return c.setSession(name, value)
	}
	return notImplemented("connection option " + key)
}

// GetOption is part of adbc.GetSetOptions.
func (c *connection) GetOption(key string) (string, error) {
	switch key {
	case adbc.OptionKeyAutoCommit:
		if c.manual {
			return adbc.OptionValueDisabled, nil
		}
		return adbc.OptionValueEnabled, nil
	case flightsql.OptionSessionOptions:
		all, err := c.session()
		if err != nil {
			return "", err
		}
		out, err := json.Marshal(all)
		if err != nil {
			return "", failure(adbc.StatusInternal, err.Error())
		}
		return string(out), nil
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionStringListSessionOptionPrefix); ok {
		list, err := option[[]string](c, name)
		if err != nil {
			return "", err
		}
		out, err := json.Marshal(list)
		return string(out), err
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionBoolSessionOptionPrefix); ok {
		on, err := option[bool](c, name)
		if err == nil && on {
			return adbc.OptionValueEnabled, nil
		}
		return adbc.OptionValueDisabled, err
	}
	name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix)
	switch key {
	case adbc.OptionKeyCurrentCatalog:
		name, ok = "catalog", true
	case adbc.OptionKeyCurrentDbSchema:
		name, ok = "schema", true
	}
	if !ok {
		return "", failure(adbc.StatusNotFound, "connection option "+key+" is not known")
	}
	return option[string](c, name)
}

// GetOptionBytes is part of adbc.GetSetOptions.
func (c *connection) GetOptionBytes(key string) ([]byte, error) {
	return nil, failure(adbc.StatusNotFound, "connection option "+key+" is not known")
}

// GetOptionInt is part of adbc.GetSetOptions.
func (c *connection) GetOptionInt(key string) (int64, error) {
	name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix)
	if !ok {
		return 0, failure(adbc.StatusNotFound, "connection option "+key+" is not known")
	}
	return option[int64](c, name)
}

// GetOptionDouble is part of adbc.GetSetOptions.
func (c *connection) GetOptionDouble(key string) (float64, error) {
	name, ok := strings.CutPrefix(key, flightsql.OptionSessionOptionPrefix)
	if !ok {
		return 0, failure(adbc.StatusNotFound, "connection option "+key+" is not known")
	}
	return option[float64](c, name)
}

func (c *connection) session() (map[string]any, error) {
	if c.closed {
		return nil, errConnectionClosed
	}
	ctx, stop := c.bounded()
	defer stop()
	all, err := c.s.Options(ctx)
	return all, toADBC(err)
}

// option is a session option of type T.
func option[T any](c *connection, name string) (T, error) {
	var none T
	all, err := c.session()
	if err != nil {
		return none, err
	}
	v, ok := all[name].(T)
	if !ok {
		return none, failure(adbc.StatusNotFound, "the session has no option "+name+" of that type")
	}
	return v, nil
}
