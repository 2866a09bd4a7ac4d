package registry

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// sqlConnector finds the database/sql driver of the option driver, or the default one,
// and gives it what source makes of Target or the options. A driver's errors about its
// text are dropped, since they quote it.
func sqlConnector(byDefault string, source func(ConnectParams) (string, error)) func(ConnectParams) (driver.Connector, error) {
	return func(r ConnectParams) (driver.Connector, error) {
		name := optionOr(r, "driver", byDefault)
		if !slices.Contains(sql.Drivers(), name) {
			return nil, fmt.Errorf("driver: the program does not import the database/sql driver %q", name)
		}
		source, err := source(r)
		if err != nil {
			return nil, err
		}
		db, err := sql.Open(name, source)
		if err != nil {
			return nil, errTextNotTaken
		}
		d := db.Driver()
		_ = db.Close() // it has opened nothing
		var connector driver.Connector = dsnConnector{source, d}
		if dc, ok := d.(driver.DriverContext); ok {
			if connector, err = dc.OpenConnector(source); err != nil {
				return nil, errTextNotTaken
			}
		}
		return textConnector{connector, source, r.Target != ""}, nil
	}
}

// targetOr is Target, or what dsn makes of the options.
func targetOr(dsn func(ConnectParams) string) func(ConnectParams) (string, error) {
	return func(r ConnectParams) (string, error) {
		source, err := SQLTarget(r)
		if err == nil && source == "" {
			source = dsn(r)
		}
		return source, err
	}
}

type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// errTextNotTaken takes the place of what a driver says of its text.
var errTextNotTaken = errors.New("target: the driver does not take it") // its words may quote the password

// textConnector is the connector of a driver that may read its text when it connects only, as pgx does and whoever has no
// driver.DriverContext.
type textConnector struct {
	driver.Connector
	text string
	own  bool // the text is the definition's Target, and may be malformed
}

// Connect drops an error that quotes the text. Of one that is malformed nobody knows what the password is: what a driver
// masks may be a part of it.
func (c textConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil && quotes(err, c.text, c.own) {
		return nil, errTextNotTaken
	}
	return conn, err
}

// Close is the driver's connector's, where that has one.
func (c textConnector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// quotes reports whether an error has text in it, or, with fields, has it in a field, from which its own words are made.
func quotes(err error, text string, fields bool) bool {
	if err == nil || !strings.ContainsAny(text, ":=@") { // the name of a file has no password
		return false
	}
	quoted := strconv.Quote(text)
	if words := err.Error(); strings.Contains(words, text) || strings.Contains(words, quoted[1:len(quoted)-1]) {
		return true
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); fields && v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.String && strings.Contains(f.String(), text) {
				return true
			}
		}
	}
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case interface{ Unwrap() error }:
		return quotes(e.Unwrap(), text, fields)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return quotes(err, text, fields) })
	default:
		return false
	}
}

// otherOptions are the options that are not named, the driver's own parameters, as the
// query of a URL. A blank is %20: to libpq and pgx a plus is a plus.
func otherOptions(r ConnectParams, without ...string) string {
	values := url.Values{}
	for name, v := range r.Options {
		if !slices.Contains(without, name) {
			values.Set(name, v)
		}
	}
	return strings.ReplaceAll(values.Encode(), "+", "%20")
}

// queryHas reports whether a URL's query has a parameter. Query would lose those with a
// semicolon in them, which are other drivers' all the same.
func queryHas(query, name string) bool {
	return slices.ContainsFunc(strings.Split(query, "&"), func(pair string) bool {
		key, _, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(key)
		return err == nil && strings.TrimSpace(key) == name
	})
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
		u := &url.URL{Scheme: scheme, Host: net.JoinHostPort(optionOr(r, "host", "localhost"), optionOr(r, "port", port)), RawQuery: otherOptions(r, addressOptions...)}
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
	if q := otherOptions(r, append(slices.Clone(addressOptions), "socket")...); q != "" {
		dsn += "?" + strings.ReplaceAll(q, "%2C", ",") // the driver does not decode its charset
	}
	return dsn
}

// firebirdDSN is a URL without its scheme, as the driver wants it.
func firebirdDSN(r ConnectParams) string {
	u := url.URL{Host: net.JoinHostPort(optionOr(r, "host", "localhost"), optionOr(r, "port", "3050")), User: url.UserPassword(r.User, r.Password), Path: "/" + strings.TrimPrefix(r.Options["dbname"], "/"), RawQuery: otherOptions(r, addressOptions...)}
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
	if u.User != nil || slices.ContainsFunc([]string{"user", "password", "user id"}, func(name string) bool { return queryHas(u.RawQuery, name) }) {
		return "", errors.New("target: it names a user, and so does the mapping: leave out one of them")
	}
	u.User = url.UserPassword(r.User, r.Password)
	return u.String(), nil
}

// errNoUser: drivers would connect as the user of the program.
var errNoUser = errors.New("user: the mapping names none")

var postgresOfOptions = targetOr(urlDSN("postgres", "5432", setDBInPath))

// postgresSource is PostgreSQLTarget for pgx. What other drivers read beside their URL is
// not known.
func postgresSource(r ConnectParams) (string, error) {
	if optionOr(r, "driver", "pgx") == "pgx" {
		return PostgreSQLTarget(r)
	}
	return postgresOfOptions(r)
}

// PostgreSQLTarget is what a kind gives to pgx: Target, or what the options make of it,
// with the credentials of the mapping. These are all that pgx has: it takes no user,
// password or client certificate from the environment and the home directory of the
// program, of which it would be in place of the user. The options passfile, sslcert,
// sslkey and service say which to take all the same: what neither the mapping nor the
// service has, pgx takes from the program then. A target without a mapping's credentials
// is pgx's as it is.
func PostgreSQLTarget(r ConnectParams) (string, error) {
	source, err := postgresOfOptions(r)
	if err != nil || r.Target != "" && r.User == "" && r.Password == "" {
		return source, err
	}
	// The text itself is added to: package url reads less of it than pgx does, and differently.
	address, query, _ := strings.Cut(source, "?")
	if queryHas(query, "service") {
		return source, nil
	}
	if r.User == "" {
		return "", errNoUser
	}
	params := []string{strings.TrimSuffix(query, "&")}
	for _, name := range []string{"passfile", "sslcert", "sslkey"} {
		if !queryHas(query, name) {
			params = append(params, name+"=")
		}
	}
	if r.Password == "" {
		params = append(params, "password=") // pgx takes no empty one before the host
	}
	return address + "?" + strings.TrimPrefix(strings.Join(params, "&"), "&"), nil
}

// mssqlSource refuses a mapping without a user: the driver would log in with the account
// that the program runs under. The option authenticator has it do so.
func mssqlSource(r ConnectParams) (string, error) {
	if r.Target == "" && r.User == "" && r.Options["driver"] == "" && r.Options["authenticator"] == "" {
		return "", errNoUser
	}
	return targetOr(urlDSN("sqlserver", "1433", setDBInQuery))(r)
}
