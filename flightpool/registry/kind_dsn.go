package registry

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// sqlConnector finds the database/sql driver of the option driver, or the default one,
// and gives it Target or what dsn makes of the options. A driver's errors about its
// text are dropped, since they quote it.
func sqlConnector(byDefault string, dsn func(ConnectParams) string) func(ConnectParams) (driver.Connector, error) {
	return func(r ConnectParams) (driver.Connector, error) {
		name := optionOr(r, "driver", byDefault)
		if !slices.Contains(sql.Drivers(), name) {
			return nil, fmt.Errorf("driver: the program does not import the database/sql driver %q", name)
		}
		source, err := SQLTarget(r)
		if err != nil {
			return nil, err
		}
		if source == "" {
			source = dsn(r)
		}
		db, err := sql.Open(name, source)
		if err != nil {
			return nil, errors.New("target: the driver does not take it") // its words may quote the password
		}
		d := db.Driver()
		_ = db.Close() // it has opened nothing
		if dc, ok := d.(driver.DriverContext); ok {
			return dc.OpenConnector(source)
		}
		return dsnConnector{source, d}, nil
	}
}

type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// otherOptions are the options that are not named: the driver's own parameters.
func otherOptions(r ConnectParams, without ...string) url.Values {
	values := url.Values{}
	for name, v := range r.Options {
		if !slices.Contains(without, name) {
			values.Set(name, v)
		}
	}
	return values
}

var addressOptions = []string{"host", "port", "dbname", "driver"}

func setDBInPath(u *url.URL, db string) { u.Path = "/" + db }
func setDBInQuery(u *url.URL, db string) {
	q := u.Query()
	q.Set("database", db)
	u.RawQuery = q.Encode()
}

// urlDSN makes the URL that a driver reads, with the options that are not the address
// as its query. User and password are percent-encoded by package url.
func urlDSN(scheme, port string, db func(*url.URL, string)) func(ConnectParams) string {
	return func(r ConnectParams) string {
		u := &url.URL{Scheme: scheme, Host: net.JoinHostPort(optionOr(r, "host", "localhost"), optionOr(r, "port", port)), RawQuery: otherOptions(r, addressOptions...).Encode()}
		if r.User != "" || r.Password != "" {
			u.User = url.UserPassword(r.User, r.Password)
		}
		if name := r.Options["dbname"]; name != "" {
			db(u, name)
		}
		return u.String()
	}
}

// mysqlDSN is what go-sql-driver reads, which is no URL: the last "@" ends the
// password, and the first ":" the user.
func mysqlDSN(r ConnectParams) string {
	address := "tcp(" + net.JoinHostPort(optionOr(r, "host", "localhost"), optionOr(r, "port", "3306")) + ")"
	if socket := r.Options["socket"]; socket != "" {
		address = "unix(" + socket + ")"
	}
	dsn := r.User + ":" + r.Password + "@" + address + "/" + url.PathEscape(r.Options["dbname"])
	if q := otherOptions(r, append(slices.Clone(addressOptions), "socket")...); len(q) > 0 {
		dsn += "?" + q.Encode()
	}
	return dsn
}

// firebirdDSN is a URL without its scheme, as the driver wants it.
func firebirdDSN(r ConnectParams) string {
	u := url.URL{Host: net.JoinHostPort(optionOr(r, "host", "localhost"), optionOr(r, "port", "3050")), User: url.UserPassword(r.User, r.Password), Path: "/" + strings.TrimPrefix(r.Options["dbname"], "/"), RawQuery: otherOptions(r, addressOptions...).Encode()}
	return strings.TrimPrefix(u.String(), "//")
}

// SQLTarget is the target of a database/sql server with the credentials of a
// mapping in it, or empty where there is no target. A target that names a user
// itself, or that is no URL, takes no other credentials: they would be ignored.
func SQLTarget(r ConnectParams) (string, error) {
	if r.Target == "" || r.User == "" && r.Password == "" {
		return r.Target, nil
	}
	u, err := url.Parse(r.Target)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Opaque != "" {
		return "", errors.New("target: not a URL, so it has to name the user itself: leave out the user and password of the mapping")
	}
	if u.User != nil || slices.ContainsFunc([]string{"user", "password", "user id"}, u.Query().Has) {
		return "", errors.New("target: it names a user, and so does the mapping: leave out one of them")
	}
	u.User = url.UserPassword(r.User, r.Password)
	return u.String(), nil
}
