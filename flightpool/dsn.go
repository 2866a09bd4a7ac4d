package flightpool

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/flightpool/flightpool/internal/netname"
	"github.com/flightpool/flightpool/internal/option"
)

// dsn is a target taken apart.
type dsn struct {
	bareTarget string // the target without credentials and options
	network    string // "tcp" or "unix"
	addr       string
	secure     bool
	given      []givenOption
}

// givenOption is an option of a DSN, read.
type givenOption struct {
	row option.Row[Config]
	set func(*Config)
}

// field is the name of the field that it sets.
func (o givenOption) field() string {
	name, _ := o.row.Names()
	return name
}

// sameField is the key of the option among others that sets the same field, or empty.
func (o givenOption) sameField(others []givenOption) string {
	for _, other := range others {
		if other.field() == o.field() {
			_, key := other.row.Names()
			return key
		}
	}
	return ""
}

// schemes are those that name their transport.
var schemes = map[string]string{"grpc": "tcp", "grpc+tcp": "tcp", "grpc+tls": "tls", "grpc+unix": "unix"}

const (
	schemeNames = "grpc://, grpc+tls://, grpc+unix:// or flightsql://"
	encodeHint  = "percent-encode the user and the password (# is %23, / is %2F, ? is %3F, % is %25, @ is %40)"
)

// schemeHints are schemes that people write for ours.
var schemeHints = map[string]string{
	"http": "grpc", "tcp": "grpc", "https": "grpc+tls", "grpcs": "grpc+tls", "grpc+ssl": "grpc+tls", "tls": "grpc+tls", "unix": "grpc+unix",
}

var (
	schemePattern   = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,19}$`)
	hostPortPattern = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?$`)
)

// parseDSN takes a target apart, or finds its faults.
//
// INVARIANT: no fault quotes what may be part of a password. An unencoded /, ?
// or # in one ends the authority for every parser, so that the rest of the
// password would stand in the path, the options or the fragment, before a bare
// @; such a text is refused before anything of it is looked at.
func parseDSN(text string) (dsn, []error) {
	u, fault := splitDSN(text)
	if fault != nil {
		return dsn{}, []error{fmt.Errorf("target: %w", fault)}
	}
	var d dsn
	pairs, faults := splitQuery(u.RawQuery)
	transport, given, more := readOptions(pairs)
	faults = append(faults, more...)
	if u.User != nil {
		o, err := userOption(u.User, given)
		d.given, faults = append(d.given, o), append(faults, err)
	}
	d.given = append(d.given, given...)
	faults = append(faults, d.resolveAddress(u, transport))
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	for i, err := range faults {
		faults[i] = fmt.Errorf("target: %w", err)
	}
	return d, faults
}

// splitDSN cuts a DSN into its parts.
func splitDSN(text string) (*url.URL, error) {
	scheme, rest, found := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	switch {
	case text == "":
		return nil, errors.New("is empty; it begins with the scheme " + schemeNames)
	case !found && hostPortPattern.MatchString(text):
		return nil, fmt.Errorf("has no scheme; did you mean grpc://%s?", text)
	case !found:
		return nil, errors.New("has no scheme; begin with " + schemeNames)
	case !schemePattern.MatchString(scheme):
		return nil, errors.New("has a malformed scheme; begin with " + schemeNames)
	case schemes[scheme] == "" && scheme != "flightsql" && schemeHints[scheme] != "":
		return nil, fmt.Errorf("scheme %q is none of %s; did you mean %s://?", scheme, schemeNames, schemeHints[scheme])
	case schemes[scheme] == "" && scheme != "flightsql":
		return nil, errors.New("its scheme is none of " + schemeNames)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, after := rest[:end], rest[end:]
	switch {
	case strings.Contains(after, "@"):
		return nil, errors.New(`has an "@" after the host; ` + encodeHint)
	case strings.Contains(after, "#"):
		return nil, errors.New("has a # part, which means nothing here; options go after ?, and # in a value is %23")
	}
	u, err := url.Parse(text) // whose error quotes
	switch {
	case err == nil:
		return u, nil
	case strings.Contains(authority, "@"):
		return nil, errors.New("has malformed credentials or a malformed host; " + encodeHint)
	default:
		return nil, errors.New("has a malformed host, port or path; a control character or a space is percent-encoded")
	}
}

// pair is an option as it stands in a DSN, decoded. shown is its name for errors.
type pair struct{ name, value, shown string }

// splitQuery cuts a query string into options, in their order.
func splitQuery(query string) (pairs []pair, faults []error) {
	seen, behindToken := map[string]int{}, false
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		rawName, rawValue, found := strings.Cut(part, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil || !found {
			faults = append(faults, errors.New("an option is not written name=value, percent-encoded"))
			continue
		}
		shown := quoteName(name, behindToken)
		behindToken = behindToken || name == "token"
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			faults = append(faults, fmt.Errorf("option %s: its value is not percent-encoded", shown))
			continue
		}
		if seen[name]++; seen[name] == 2 {
			faults = append(faults, fmt.Errorf("option %s is given more than once", shown))
		}
		pairs = append(pairs, pair{name, value, shown})
	}
	return pairs, faults
}

var parseTransport = option.Choice("tcp, tls, unix", "tcp", "tls", "unix")

// readOptions reads the options of a DSN, and its transport apart.
func readOptions(pairs []pair) (transport string, given []givenOption, faults []error) {
	for _, p := range pairs {
		if p.name == "transport" {
			t, err := parseTransport(p.value)
			if err != nil {
				faults = append(faults, fmt.Errorf("transport: %w", err))
			}
			transport = t
			continue
		}
		row, known := fields.Find(p.name)
		if !known {
			faults = append(faults, fmt.Errorf("option %s is none of transport, %s", p.shown, strings.Join(fields.Keys(), ", ")))
			continue
		}
		set, err := row.Parse(p.value)
		if err != nil {
			faults = append(faults, fmt.Errorf("option %s: %w", p.name, err))
			continue
		}
		o := givenOption{row, set}
		if other := o.sameField(given); other != "" && other != p.name {
			faults = append(faults, fmt.Errorf("option %s: excludes option %s", p.name, other))
		}
		given = append(given, o)
	}
	return transport, given, faults
}

// userOption is the setting that a DSN's user part makes.
func userOption(user *url.Userinfo, others []givenOption) (givenOption, error) {
	row, _ := fields.Find("token")
	password, _ := user.Password()
	given := givenOption{row, func(c *Config) { c.Auth = BasicAuth(user.Username(), password) }}
	if user.Username() == "" {
		return given, errors.New("has credentials without a user")
	}
	if other := given.sameField(others); other != "" {
		return given, fmt.Errorf("option %s: excludes a user in the target", other)
	}
	return given, nil
}

// quoteName shows the name of an option, unless it is too long for one, or may be the rest of a token with
// an & in it.
func quoteName(name string, behindToken bool) string {
	_, known := fields.Find(name)
	switch {
	case len(name) > 40:
		return "with a name that is too long"
	case behindToken && !known && name != "transport":
		return "behind token, whose name is not shown (an & in a value is written %26),"
	default:
		return strconv.Quote(name)
	}
}

// resolveAddress finds out where u points to and how to get there.
func (d *dsn) resolveAddress(u *url.URL, transport string) error {
	by := schemes[u.Scheme]
	switch {
	case by == "" && transport != "":
		by = transport
	case by == "" && netname.IsLoopback(u.Hostname()):
		by = "tcp"
	case by == "":
		by = "tls"
	case transport != "" && transport != by:
		return fmt.Errorf("transport=%s contradicts the scheme %s://; use flightsql:// with it, or %s:// without", transport, u.Scheme, schemeFor(transport))
	}
	d.secure = by == "tls"
	if by == "unix" {
		if u.Path == "" || strings.HasSuffix(u.Path, "/") || u.Port() != "" {
			return errors.New("a Unix socket needs its path in place of host and port, as in grpc+unix:///run/db.sock")
		}
		d.network, d.addr = "unix", u.Host+u.Path
		d.bareTarget = strings.ReplaceAll((&url.URL{Scheme: "grpc+unix", Host: u.Host, Path: u.Path}).String(), "@", "%40")
		return nil
	}
	host := u.Hostname()
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case host == "":
		return errors.New("has no host")
	case strings.Contains(host, ":") && !strings.HasPrefix(u.Host, "["):
		return errors.New("an IPv6 address is written in brackets, as in grpc://[::1]:31337")
	case u.Port() == "":
		return errors.New("has no port")
	case err != nil || port == 0:
		return errors.New("the port is not between 1 and 65535")
	case strings.Trim(u.Path, "/") != "":
		return errors.New("has a path, which means nothing here; options go after ?")
	}
	d.network, d.addr = "tcp", net.JoinHostPort(host, strconv.FormatUint(port, 10))
	d.bareTarget = (&url.URL{Scheme: schemeFor(by), Host: d.addr}).String()
	return nil
}

// schemeFor is the scheme that names a transport.
func schemeFor(transport string) string {
	if transport == "tcp" {
		return "grpc"
	}
	return "grpc+" + transport
}

// merge adds what the DSN says to cfg. A field that both set is a fault, since
// neither can be taken to be meant.
func (d *dsn) merge(cfg Config) (Config, []error) {
	var faults []error
	merged := cfg
	for _, o := range d.given {
		if o.row.IsSet(&cfg) {
			faults = append(faults, fmt.Errorf("%s: set in the target and in the Config", o.field()))
			continue
		}
		o.set(&merged)
	}
	return merged, faults
}

// checkTLS refuses a TLS configuration that the target would leave unused.
func (d *dsn) checkTLS(cfg *tls.Config) error {
	if cfg == nil || d.secure {
		return nil
	}
	return errors.New("TLS: the target is plain text; use grpc+tls://, or flightsql:// with transport=tls")
}
