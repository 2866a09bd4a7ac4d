package testserver

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
)

// Profile is how a server behaves where real servers differ. Its zero value
// is Strict: everything is supported, checked and cancelled. Each other value
// of a field is something that a real server does. A Profile is plain data:
// copy one and change it.
type Profile struct {
	Name string // for reports

	// SessionKey tells what a session is bound to.
	SessionKey SessionKey
	// KeyName is the cookie of ByCookie or the header of ByHeader. Default
	// "arrow_flight_session_id" and "x-session-id".
	KeyName string
	// SessionTTL is how long a session outlives the start of its last
	// statement. Zero: a session by connection ends with its connection, any
	// other when the server closes or the client closes it.
	SessionTTL time.Duration
	// JanitorEvery lets sessions end only at multiples of this time since the
	// server's start, at the first after their time. Zero: at their time.
	JanitorEvery time.Duration
	// MaxSessions bounds the sessions that exist; zero is no bound. One more
	// is refused with LimitCode, default ResourceExhausted.
	MaxSessions int
	LimitCode   codes.Code
	// KilledCode and KilledText are what a session that an operator has killed refuses
	// everything by, but for what needs none. Zero: as GizmoSQL does.
	KilledCode codes.Code
	KilledText string
	// TokenCode and TokenText are what a bearer token is refused by that the server does not know, in front of everything
	// else. Zero: UNAUTHENTICATED.
	TokenCode codes.Code
	TokenText string
	// EvictedCode is what GetSessionOptions answers, once, to a client whose
	// session was evicted. Zero: the client silently gets a new session, as
	// it does from every other RPC.
	EvictedCode codes.Code
	// FreshCookie gives a client of ByCookie another cookie once its session
	// was evicted, with the answer of the RPC that makes the new session.
	FreshCookie bool

	// IgnoreRPCCancel lets a statement run on, or wait on for its turn, when
	// its RPC ends. Results are collected before they are sent.
	IgnoreRPCCancel bool
	// SideBySide runs the statements of a session side by side: one that sleeps,
	// or whose rows wait for their reader, lets others through. Otherwise each
	// waits for the one before.
	SideBySide bool
	// LockSessions refuses an RPC of a session while another of it is served, by INVALID_ARGUMENT.
	LockSessions bool
	// RowByRow runs a change with parameters as a statement for each row of them, and lets what else the
	// session is sent come to its turn in between, a ROLLBACK too. The rows that are left run after that, also
	// when the RPC has ended, with IgnoreRPCCancel.
	RowByRow bool
	// SessionWideCancel makes the cancel actions stop whatever the session
	// of the caller runs now, whichever FlightInfo they name; an idle session
	// answers INVALID_ARGUMENT, and so does a FlightInfo without a descriptor, which
	// Arrow's library for C++ cannot decode. Otherwise they stop what they name, and an
	// unknown name is NOT_FOUND.
	SessionWideCancel bool
	// MaxStatements is how many queries and updates the server runs at a time; zero is no bound. The others wait
	// in the order in which they came, before it is their turn in the session. The beginnings and ends of
	// transactions do not wait. With SessionWideCancel, a cancel of one that waits is confirmed, and stops nothing.
	MaxStatements int
	// CancelActions are custom actions that stop whatever the caller's
	// session runs now.
	CancelActions []string

	// IgnoreTxID runs every statement in the session's state, whatever
	// transaction it names.
	IgnoreTxID bool
	// UnknownTxOK makes the end of an unknown transaction a success, and
	// AbortedCommitOK the commit of an aborted one, which stores nothing.
	UnknownTxOK, AbortedCommitOK bool
	// EndsAnyTx makes the end of a transaction, whatever its id, that of the session's own. Without
	// one it is INVALID_ARGUMENT.
	EndsAnyTx bool
	// FailuresDoNotAbort takes back what a statement of a transaction has done
	// when it fails, and the transaction goes on without it. The engine needs
	// savepoints.
	FailuresDoNotAbort bool
	// AutoRecover answers a transaction error by ROLLBACK and by running the
	// failed statement again, outside the transaction. The end of that
	// transaction then fails once with FAILED_PRECONDITION, be it a commit or
	// a rollback; after that it is unknown.
	AutoRecover bool
	// CountedIDs numbers transactions from 1 in each session, and prepared
	// statements as well, in 8 bytes, big-endian: a stale id can name another
	// session's object. An id of another length is INVALID_ARGUMENT, but for
	// an empty one of a prepared statement, which names the latest.
	CountedIDs bool

	// Run tells when a query is executed.
	Run RunAt
	// ByText tells queries from commands by the first word of their text, as a
	// parser without the engine's grammar does. A command has no rows, whatever
	// it returns; text that the engine's parser refuses is refused when it runs;
	// empty text does nothing. A prepared query cannot be run as an update.
	ByText bool
	// NullParams runs a query whose parameters are not bound with NULLs, also
	// for the schema of a prepared one. Parameters are described as text
	// unless the types of all are known.
	NullParams bool
	// AppendTo makes an INSERT with parameters append them as rows, whatever
	// its VALUES or SELECT says, and leaves the session in the catalog of the
	// table. A table without a catalog is in this one, unless the session has
	// left the catalog "memory". Its parameters are described by the names of
	// the columns that it lists, if their types are known; and parameters with
	// numbers ($2), of any statement, by the columns that they are for, in the
	// order of the text.
	AppendTo string
	// StripLocks removes FOR UPDATE and FOR SHARE from queries.
	StripLocks bool
	// NoSchema leaves the schema out of FlightInfo.
	NoSchema bool
	// Unordered says in FlightInfo that rows come in no order.
	Unordered bool
	// Endpoints is how many endpoints a result has, default 1. With more, a
	// query runs in GetFlightInfo and each endpoint has a run of its batches.
	Endpoints int
	// Locations are those of every endpoint, in order.
	Locations []Location
	// Polls is how many answers of PollFlightInfo precede the complete one,
	// each PollEvery after it was asked for. NoProgress leaves out how far
	// the query is.
	Polls      int
	PollEvery  time.Duration
	NoProgress bool
	// RoamingTickets carry the statement itself and run in the session of
	// whoever redeems them. So do those that are made in a session of a
	// single RPC. Otherwise a ticket runs in the session that it was made in,
	// and is good for one DoGet.
	RoamingTickets bool
	// ZeroCounts answers every update that is not prepared with a count of 0.
	ZeroCounts bool
	// AffectedHeader is the header in which DoGet tells the rows affected by
	// a statement that has no rows. Empty: it does not tell.
	AffectedHeader string
	// BindFirstRow ignores all but the first row of a query's parameters,
	// and forgets them after one run.
	BindFirstRow bool
	// NullsAsText takes a NULL among the parameters for the text null, where they are texts or of no type.
	NullsAsText bool
	// RenewHandles gives a prepared statement a new handle with every bind.
	RenewHandles bool
	// NoHandles gives prepared statements an empty handle, by which the session runs the query or statement that it was sent
	// last, and closes nothing.
	NoHandles bool
	// BoundUpdates runs a prepared update with the parameters that were bound last, for a query,
	// whatever comes with it; without any it is INVALID_ARGUMENT.
	BoundUpdates bool
	// ClosesFailed has a prepared update that has failed refuse whatever it is to execute after that.
	ClosesFailed bool
	// CancelCloses has a cancel of a prepared query close the statement, whose handle is NOT_FOUND from then on.
	CancelCloses bool

	// MaxRequest is the limit of one request message in bytes, default 4 MiB.
	// TooLargeCode answers a larger one, default ResourceExhausted.
	MaxRequest   int
	TooLargeCode codes.Code
	// NulCode answers a statement with a NUL byte, before the engine sees it.
	// Zero: it is the engine's to refuse.
	NulCode codes.Code
	// TicketCode answers a ticket that is unknown, default NotFound.
	TicketCode codes.Code
	// StatementCode is the code of a statement that fails, default
	// InvalidArgument. ErrorPrefix begins its message.
	StatementCode codes.Code
	ErrorPrefix   string

	// Refuse maps what the server does not have to the code it answers. Keys
	// are actions ("CancelFlightInfo", "CloseSession", "BeginTransaction"),
	// commands ("CommandStatementIngest") and RPCs ("GetSchema").
	Refuse map[string]codes.Code
	// ListedActions is the answer to ListActions. Nil is the truth.
	ListedActions []string
	// SQLInfo is all that GetSqlInfo answers; other ids are left out. Nil is
	// what the engine says, and what follows from Refuse; other ids are an error.
	SQLInfo map[flightsql.SqlInfo]any

	// Handshake tells how the token of a handshake is handed out.
	Handshake HandshakeToken
}

// SessionKey tells what a session is bound to.
type SessionKey uint8

// What a session is bound to.
const (
	ByConnection SessionKey = iota // one TCP connection, one session
	ByPeerIP                       // all connections of a host share one
	ByCookie                       // a cookie; without it every RPC gets a new session
	ByBearer                       // one bearer token, one session
	ByHeader                       // the value of a header; without it every RPC is its own
	ByCall                         // every RPC its own: a server without sessions
)

// RunAt tells when a query is executed.
type RunAt uint8

// When a query is executed.
const (
	RunInDoGet RunAt = iota // once, when its ticket is redeemed
	RunInInfo               // once, in GetFlightInfo; DoGet sends the result
	RunInBoth               // in GetFlightInfo for the schema, and again in DoGet
)

// Location is a location of an endpoint.
type Location uint8

// Locations of endpoints.
const (
	ReuseConnection Location = iota // arrow-flight-reuse-connection://?
	OwnAddress                      // the address of this server
	Unreachable                     // an address where nobody listens
)

// HandshakeToken tells how the token of a handshake is handed out.
type HandshakeToken uint8

// How the token of a handshake is handed out.
const (
	TokenInHeader  HandshakeToken = iota // the authorization header of the answer
	TokenInPayload                       // the payload of the answer
	NoToken                              // not at all: everybody is let in
)

const defaultMaxRequest = 4 << 20

func (p Profile) resolve() (Profile, error) {
	var errs []error
	check := func(ok bool, field string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: invalid value %v", "Profile."+field, value))
		}
	}
	check(p.SessionKey <= ByCall, "SessionKey", p.SessionKey)
	check(p.SessionTTL >= 0, "SessionTTL", p.SessionTTL)
	check(p.JanitorEvery >= 0, "JanitorEvery", p.JanitorEvery)
	check(p.MaxSessions >= 0, "MaxSessions", p.MaxSessions)
	check(p.MaxStatements >= 0, "MaxStatements", p.MaxStatements)
	check(p.Run <= RunInBoth, "Run", p.Run)
	check(p.Endpoints >= 0, "Endpoints", p.Endpoints)
	check(p.Polls >= 0, "Polls", p.Polls)
	check(p.PollEvery >= 0, "PollEvery", p.PollEvery)
	check(p.MaxRequest >= 0, "MaxRequest", p.MaxRequest)
	check(p.Handshake <= NoToken, "Handshake", p.Handshake)
	for _, l := range p.Locations {
		check(l <= Unreachable, "Locations", l)
	}
	check(!p.RoamingTickets || p.Endpoints <= 1 && p.Run != RunInInfo, "RoamingTickets", "with a result that is kept")
	for what, code := range p.Refuse {
		check(code != codes.OK, "Refuse", what)
	}

	setDefault(&p.Name, "strict")
	setDefault(&p.LimitCode, codes.ResourceExhausted)
	setDefault(&p.KilledCode, codes.InvalidArgument)
	setDefault(&p.KilledText, "Your session has been killed. Please re-connect.")
	setDefault(&p.TokenCode, codes.Unauthenticated)
	setDefault(&p.TokenText, "bearer token is unknown or expired")
	setDefault(&p.StatementCode, codes.InvalidArgument)
	setDefault(&p.TooLargeCode, codes.ResourceExhausted)
	setDefault(&p.TicketCode, codes.NotFound)
	setDefault(&p.MaxRequest, defaultMaxRequest)
	setDefault(&p.Endpoints, 1)
	if p.SessionKey == ByCookie {
		setDefault(&p.KeyName, "arrow_flight_session_id")
	}
	if p.SessionKey == ByHeader {
		setDefault(&p.KeyName, "x-session-id")
	}
	if p.Endpoints > 1 {
		p.Run = RunInInfo
	}
	return p, errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
