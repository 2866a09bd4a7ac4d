package adbcpool

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"google.golang.org/grpc/metadata"
)

// dbOption is an option of a database, for its connections.
type dbOption struct{ key, value string }

// SetOptions is part of adbc.Database.
func (d *database) SetOptions(options map[string]string) error {
	keys := make([]string, 0, len(options))
	for key := range options {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := d.SetOption(key, options[key]); err != nil {
			return err
		}
	}
	return nil
}

// SetOption is part of adbc.PostInitOptions. An option of connections holds for
// those that are opened later.
func (d *database) SetOption(key, value string) error {
	switch key {
	case adbc.OptionKeyURI, adbc.OptionKeyUsername, adbc.OptionKeyPassword:
		return newADBCError(adbc.StatusNotImplemented, "database option "+key+" is the pool's: set it where the pool is made")
	case adbc.OptionKeyAutoCommit, OptionConstraints:
		if _, err := parseBool(key, value); err != nil {
			return err
		}
	case adbc.OptionKeyReadOnly:
		if err := requireValue(adbc.OptionValueDisabled, key, value); err != nil {
			return err
		}
	case adbc.OptionKeyIsolationLevel:
		if err := requireValue(string(adbc.LevelDefault), key, value); err != nil {
			return err
		}
	case adbc.OptionKeyCurrentCatalog, adbc.OptionKeyCurrentDbSchema:
	default:
		if name, ok := strings.CutPrefix(key, flightsql.OptionRPCCallHeaderPrefix); ok {
			if err := setHeader(metadata.MD{}, name, value); err != nil {
				return err
			}
			break
		}
		_, _, known, err := parseSessionOption(key, value)
		if err != nil {
			return err
		}
		if !known {
			return notImplemented("database option " + key)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.mu.settings, func(s dbOption) bool { return s.key == key }); i >= 0 {
		d.mu.settings = slices.Delete(d.mu.settings, i, i+1)
	}
	d.mu.settings = append(d.mu.settings, dbOption{key, value})
	return nil
}

// GetOption is part of adbc.GetSetOptions: what SetOption was given.
func (d *database) GetOption(key string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.mu.settings {
		if s.key == key {
			return s.value, nil
		}
	}
	return "", unknownOption("database", key)
}

// configure sets on a new connection what the database was given.
func (d *database) configure(ctx context.Context, c *connection) error {
	d.mu.Lock()
	settings := slices.Clone(d.mu.settings)
	d.mu.Unlock()
	for _, s := range settings {
		if err := c.setOption(ctx, s.key, s.value); err != nil {
			return err
		}
	}
	return nil
}

// textOptions is what is left of adbc.GetSetOptions where all options are text.
type textOptions struct{ owner string }

// SetOptionBytes is part of adbc.GetSetOptions.
func (o textOptions) SetOptionBytes(key string, _ []byte) error { return o.notTextError(key, "bytes") }

// SetOptionInt is part of adbc.GetSetOptions.
func (o textOptions) SetOptionInt(key string, _ int64) error {
	return o.notTextError(key, "an integer")
}

// SetOptionDouble is part of adbc.GetSetOptions.
func (o textOptions) SetOptionDouble(key string, _ float64) error {
	return o.notTextError(key, "a number")
}

// GetOptionBytes is part of adbc.GetSetOptions.
func (o textOptions) GetOptionBytes(key string) ([]byte, error) {
	return nil, unknownOption(o.owner, key)
}

// GetOptionInt is part of adbc.GetSetOptions.
func (o textOptions) GetOptionInt(key string) (int64, error) { return 0, unknownOption(o.owner, key) }

// GetOptionDouble is part of adbc.GetSetOptions.
func (o textOptions) GetOptionDouble(key string) (float64, error) {
	return 0, unknownOption(o.owner, key)
}

func (o textOptions) notTextError(key, as string) error {
	return notImplemented(o.owner + " option " + key + " as " + as)
}

func unknownOption(of, key string) error {
	return newADBCError(adbc.StatusNotFound, of+" option "+key+" is not known, or has not been set")
}

// setHeader sets a header of calls, or with an empty value removes it.
func setHeader(headers metadata.MD, name, value string) error {
	if name == "" {
		return newADBCError(adbc.StatusInvalidArgument, "a call header needs a name: "+flightsql.OptionRPCCallHeaderPrefix+"NAME")
	}
	if value == "" {
		headers.Delete(name)
	} else {
		headers.Append(name, value)
	}
	return nil
}

// headerOption is the value of a header option.
func headerOption(headers metadata.MD, of, key string) (string, error) {
	if values := headers.Get(strings.TrimPrefix(key, flightsql.OptionRPCCallHeaderPrefix)); len(values) > 0 {
		return values[0], nil
	}
	return "", unknownOption(of, key)
}
