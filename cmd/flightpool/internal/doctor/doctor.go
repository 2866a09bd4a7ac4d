// Package doctor finds out what a Flight SQL server does, by trying it, and which
// settings of a pool suit it. What it creates are temporary tables, and one table
// with a name of its own, which it drops.
package doctor

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// Options say what is examined, and how.
type Options struct {
	Target string
	Config flightpool.Config // with credentials
	// ReadOnly leaves out what needs a table: sessions, transactions, ingestion.
	ReadOnly bool
	// Idle is how long a session is left alone to see whether it stays. Zero: that
	// is not tried.
	Idle time.Duration
	// Slow is a query that takes some seconds at least, for the cancel. Empty: one is looked for.
	Slow string
	// Found is told of each finding as it is made. Nil: nobody.
	Found func(Finding)
}

// A Finding is what the server does in one matter.
type Finding struct {
	Subject string `json:"subject"`
	Verdict string `json:"verdict"` // short: yes, no, unknown, or one of the matter's own
	Detail  string `json:"detail,omitempty"`
}

// A Setting is a field of flightpool.Config that the server asks for.
type Setting struct {
	Field string `json:"field"`
	Go    string `json:"go"` // its value, as Go has it
	Why   string `json:"why"`
}

// A Report is all that was found.
type Report struct {
	Target   string    `json:"target"`
	Findings []Finding `json:"findings"`
	Settings []Setting `json:"settings"`
}

// Verdict is that of a subject, empty where it was not examined.
func (r *Report) Verdict(subject string) string {
	for _, f := range r.Findings {
		if f.Subject == subject {
			return f.Verdict
		}
	}
	return ""
}

// The verdicts that several matters share.
const (
	yes     = "yes"
	no      = "no"
	unknown = "unknown"
)

// patience bounds one try, but for those that wait on purpose.
const patience = 20 * time.Second

// An exam is one examination.
type exam struct {
	Options
	report   Report
	probe    string                              // a query that the server takes
	header   string                              // for a session, where one is needed
	byQuery  bool                                // changes are taken as queries only
	tls      atomic.Pointer[tls.ConnectionState] // nil in plain text
	lastName int
	findings []Finding // of the matter that is tried
	left     []Finding // of tables that it could not drop
	silence  error     // of a call of it that had no answer
	again    bool      // it is tried a second time
	suffix   string
}

// A matter is what is found out by itself.
type matter struct {
	subject string
	try     func(context.Context)
}

// matters are in the order in which they need each other.
func (e *exam) matters() []matter {
	return []matter{
		{"server", e.server}, {"TLS", e.transport}, {"authentication", e.authentication}, {"sessions", e.sessions}, {"parameters", e.prepared},
		{"transactions", e.transactions}, {"cancel", e.cancelling}, {"ingestion", e.ingestion}, {"largest request", e.requests}, {"idle sessions", e.idling},
	}
}

func newExam(opts Options) *exam {
	e := &exam{Options: opts, suffix: strings.ToLower(rand.Text()[:10])}
	e.report = Report{Target: opts.Target, Findings: []Finding{}, Settings: []Setting{}}
	return e
}

// Examine tries a server. Its error says that there is no connection.
func Examine(ctx context.Context, opts Options) (*Report, error) {
	e := newExam(opts)
	if err := e.reach(ctx); err != nil {
		return nil, err
	}
	for _, m := range e.matters() {
		if e.examine(ctx, m); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return &e.report, nil
}

// examine tries one matter; again, where a connection has broken or the server had no room
// or no credentials for a moment. Where a call of it had no answer, nothing that was found
// beside that call counts.
func (e *exam) examine(ctx context.Context, m matter) {
	defer func() { // also when ctx has ended
		e.tell(e.left)
		e.left = nil
	}()
	header, settings := e.header, len(e.report.Settings)
	for _, e.again = range []bool{false, true} {
		e.silence, e.findings, e.header, e.report.Settings = nil, nil, header, e.report.Settings[:settings]
		if m.try(ctx); ctx.Err() != nil {
			return
		}
		if fault := backend.FaultIn(e.silence); fault != backend.FaultTransport && !ofTheMoment(fault) {
			break
		}
	}
	if e.silence != nil {
		e.header, e.report.Settings = header, e.report.Settings[:settings]
		e.findings = []Finding{{m.subject, unknown, firstLine(e.silence)}}
	}
	e.tell(e.findings)
}

// tell reports findings, which are final.
func (e *exam) tell(findings []Finding) {
	e.report.Findings = append(e.report.Findings, findings...)
	for _, f := range findings {
		if e.Found != nil {
			e.Found(f)
		}
	}
}

// heard notes a failure that is no answer of the server's, and returns it.
func (e *exam) heard(err error) error {
	if err != nil && e.silence == nil && !answered(err) {
		e.silence = err
	}
	return err
}

// answered reports whether a failure is the server's word on what was asked, or that
// nothing was asked.
func answered(err error) bool { return isWord(err) || backend.FaultIn(err) == backend.FaultUsage }

// ofTheMoment reports whether a fault says nothing of the call: the server has no room, or
// no longer knows who asks.
func ofTheMoment(fault backend.Fault) bool {
	return fault == backend.FaultLimit || fault == backend.FaultAuth
}

// reachable reports whether the server is still there, so that its silence at one call is
// what it makes of that call.
func (e *exam) reachable(ctx context.Context) bool {
	l, err := e.connect(ctx, nil)
	if err != nil {
		return false
	}
	l.close(ctx)
	e.silence = nil
	return true
}

func (e *exam) found(subject, verdict, detail string, args ...any) {
	e.findings = append(e.findings, Finding{subject, verdict, fmt.Sprintf(detail, args...)})
}

func (e *exam) set(field, value, why string) {
	e.report.Settings = append(e.report.Settings, Setting{field, value, why})
}

// name makes a name of our own.
func (e *exam) name() string {
	e.lastName++
	return fmt.Sprintf("flightpool_doctor_%s_%d", e.suffix, e.lastName)
}

// reach finds a query by which connections can be proven.
func (e *exam) reach(ctx context.Context) error {
	var refused error
	for _, sql := range []string{e.Config.HealthCheck.SQL, "SELECT 1", "VALUES 1", "SELECT 1 FROM DUAL"} {
		if sql == "" {
			continue
		}
		e.probe = sql
		l, err := e.connect(ctx, nil)
		if err == nil {
			l.close(ctx)
			if sql != "SELECT 1" {
				e.set("HealthCheck.SQL", fmt.Sprintf("%q", sql), "the server refuses SELECT 1")
			}
			return nil
		}
		var known *flightpool.Error
		if refused = errors.Join(refused, err); backend.FaultIn(err) != backend.FaultStatement || errors.As(err, &known) && known.Stage < backend.StageProbe {
			return err // another query would be of no use
		}
	}
	return refused
}

func (e *exam) server(ctx context.Context) {
	l, err := e.connect(ctx, nil)
	if err != nil {
		return
	}
	defer l.close(ctx)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type info struct {
		Code  uint32 `arrow:"info_name"`
		Value string `arrow:"value"`
	}
	var words []string
	found, _ := flightpool.CollectRows[info](l.pool.SQLInfo(ctx, 0, 1)) // name and version, where it tells
	for _, i := range found {
		words = append(words, i.Value)
	}
	if len(words) > 0 {
		e.found("server", strings.Join(words, " "), "")
	}
}

func (e *exam) transport(context.Context) {
	state := e.tls.Load()
	if state == nil {
		e.found("TLS", no, "the connection is plain text")
		return
	}
	detail := tls.VersionName(state.Version)
	if len(state.PeerCertificates) > 0 {
		detail += ", certificate until " + state.PeerCertificates[0].NotAfter.UTC().Format(time.DateOnly)
	}
	e.found("TLS", yes, "%s", detail)
}

func (e *exam) authentication(ctx context.Context) {
	anonymous, err := e.connect(ctx, func(c *flightpool.Config, _ *tap) { c.Auth, c.Headers = flightpool.Auth{}, nil })
	required := err != nil
	if err == nil {
		anonymous.close(ctx)
	}
	named, err := e.connect(ctx, nil)
	if err != nil {
		e.unopened("authentication", err)
		return
	}
	defer named.close(ctx)
	how := "nobody was named"
	switch sent := named.tap.authorization(); {
	case named.tap.handshakes.Load() > 0 && strings.HasPrefix(sent, "Bearer "):
		how = "a handshake gives each connection a bearer token"
	case strings.HasPrefix(sent, "Bearer "):
		how = "by a bearer token"
	case sent != "":
		how = "by an authorization header"
	case named.tap.handshakes.Load() > 0:
		how = "a handshake lets everybody in"
	}
	if required {
		e.found("authentication", yes, "%s", how)
	} else {
		e.found("authentication", no, "who is not named is let in; %s", how)
	}
}
