package registry_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// lateDriver reads its text when it connects, as firebirdsql and lib/pq do. What it says of one that is malformed quotes it.
type lateDriver struct{}

func (lateDriver) Open(text string) (driver.Conn, error) {
	if _, err := url.Parse("late://" + text); err != nil {
		return nil, errors.New(err.Error()) // its words alone
	}
	return nil, errors.New("nobody listens")
}

// lateContextDriver is one whose connector does that, and has something to close.
type lateContextDriver struct{ lateDriver }

var lateClosed = 0

type lateConnector struct {
	lateContextDriver
	text string
}

func (d lateContextDriver) OpenConnector(text string) (driver.Connector, error) {
	return lateConnector{d, text}, nil
}
func (c lateConnector) Connect(context.Context) (driver.Conn, error) {
	_, err := c.Open(c.text)
	return nil, wordlessError{err}
}
func (c lateConnector) Driver() driver.Driver { return c.lateContextDriver }
func (lateConnector) Close() error            { lateClosed++; return nil }

type wordlessError struct{ error }

func (wordlessError) Error() string   { return "no connection" }
func (e wordlessError) Unwrap() error { return e.error }

func init() {
	sql.Register("late", lateDriver{})
	sql.Register("latecontext", lateContextDriver{})
}

// Drivers that read their texts when they connect quote them then, or what they take for no part of the password.
func TestNoErrorOfADriverQuotesItsText(t *testing.T) {
	for name, c := range map[string]struct {
		def    registry.ServerDefinition
		user   registry.UserMapping
		says   string
		closes int
	}{
		"pgx masks up to a blank": {
			def:  registry.ServerDefinition{Kind: "postgresql", Target: "host=127.0.0.1 port=1 user=app password=hun ter2"},
			says: "target: the driver does not take it",
		},
		"pgx masks nothing behind a blank": {
			def:  registry.ServerDefinition{Kind: "postgresql", Target: "host=127.0.0.1 port=x user=app password = hunter2"},
			says: "target: the driver does not take it",
		},
		"pgx tells of a network": {
			def:  registry.ServerDefinition{Kind: "postgresql", Target: "postgres://app:hunter2@127.0.0.1:1/db?sslmode=disable"},
			says: "connection refused",
		},
		"pgx tells what is wrong with an option": {
			def:  registry.ServerDefinition{Kind: "postgresql", Options: map[string]string{"host": "127.0.0.1", "port": "1", "sslmode": "hardly"}},
			user: registry.UserMapping{User: "app", Password: "hunter2"},
			says: "sslmode is invalid",
		},
		"the text is read by Open": {
			def:  registry.ServerDefinition{Kind: "firebird", Target: "app:hun%ter2@h/db", Options: map[string]string{"driver": "late"}},
			says: "target: the driver does not take it",
		},
		"and made of options": {
			def:  registry.ServerDefinition{Kind: "firebird", Options: map[string]string{"driver": "late", "host": "a b"}},
			user: registry.UserMapping{User: "app", Password: "hunter2"},
			says: "target: the driver does not take it",
		},
		"a text with quotes": {
			def:  registry.ServerDefinition{Kind: "firebird", Target: `app:hun"%ter2@h/db`, Options: map[string]string{"driver": "late"}},
			says: "target: the driver does not take it",
		},
		"the text is read by the connector": {
			def:  registry.ServerDefinition{Kind: "firebird", Target: "app:hun%ter2@h/db", Options: map[string]string{"driver": "latecontext"}},
			says: "target: the driver does not take it", closes: 2, // of two: database/sql has made one to know the driver
		},
		"what is no word of the text": {
			def:  registry.ServerDefinition{Kind: "firebird", Target: "app:hunter2@h/db", Options: map[string]string{"driver": "late"}},
			says: "nobody listens",
		},
	} {
		t.Run(name, func(t *testing.T) {
			lateClosed = 0
			r := registry.New()
			c.def.Name, c.def.MinIdle, c.def.WarmupConnections = "s", -1, -1
			c.def.Users = map[string]registry.UserMapping{registry.Public: c.user}
			require.NoError(t, r.Register(t.Context(), c.def))
			_, err := r.Acquire(t.Context(), "s", "ann")
			require.ErrorContains(t, err, c.says)
			for _, part := range []string{"hunter2", "hun", "ter2"} {
				require.NotContains(t, err.Error(), part)
			}
			require.NoError(t, r.Close(t.Context()))
			require.Equal(t, c.closes, lateClosed)
		})
	}
}
