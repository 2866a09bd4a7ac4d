package dsql_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A simSession is one session of a simulated cluster.
type simSession struct {
	*simulated
	raw      net.Conn
	conn     *tls.Conn
	pid      uint32
	secret   []byte
	opened   time.Time
	canceled chan struct{}
	gone     chan struct{} // closed when the client's side has ended
	in       chan simMessage

	out      []byte
	tx       byte
	begun    time.Time
	pending  []int
	seen     map[int]int // versions of the keys that the transaction writes
	prepared map[string]string
	portal   string
	args     []string
	formats  []int16
	skip     bool // until Sync
	mem      string
	copied   []byte
	copying  bool
}

type simMessage struct {
	kind byte
	body []byte
}

// simError is an answer with an error; fatal ones end the session.
type simError struct {
	code  string
	fatal bool
}

func (c *simSession) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, c.pid)
}

// drop ends the session without a word.
func (c *simSession) drop() { _ = c.raw.Close() }

func (c *simSession) run() {
	defer c.forget()
	defer c.drop()
	for {
		left := c.life - time.Since(c.opened)
		if c.tx != 'I' {
			left += 5 * time.Minute
		}
		timer := time.NewTimer(max(left, 0))
		select {
		case m := <-c.in:
			timer.Stop()
			if !c.handle(m) {
				return
			}
		case <-c.gone:
			timer.Stop()
			return
		case <-timer.C:
			c.count("ended for its age")
			c.out = nil
			c.send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "too old"})
			c.flush()
			return
		}
	}
}

// read reads what comes until the client has gone.
func (c *simSession) read() {
	defer close(c.gone)
	for {
		kind, body, err := readSimMessage(c.conn)
		if err != nil {
			return
		}
		c.in <- simMessage{kind, body}
	}
}

// hasGone says whether the client has gone.
func (c *simSession) hasGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

func (c *simSession) send(m pgproto3.BackendMessage) {
	var err error
	if c.out, err = m.Encode(c.out); err != nil {
		panic(err)
	}
}

// flush sends what is answered, or a part of it.
func (c *simSession) flush() bool {
	out := c.out
	c.out = nil
	if len(out) > 0 && c.fails() {
		n := c.n(len(out))
		c.count("answer broken off")
		_, _ = c.conn.Write(out[:n])
		switch c.n(3) {
		case 0:
			return false
		case 1:
			return c.hang()
		}
		c.count("answer in two parts")
		c.sleep(time.Duration(c.n(int(2 * time.Second))))
		out = out[n:]
	}
	_, err := c.conn.Write(out)
	return err == nil
}

// hang answers nothing until the client has gone.
func (c *simSession) hang() bool {
	c.count("hung")
	<-c.gone
	return false
}

// sleep waits, and says whether it was cancelled.
func (c *simSession) sleep(d time.Duration) (canceled bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-c.canceled:
		return true
	case <-c.gone:
		return false
	}
}

// breaksOff may break the connection off here.
func (c *simSession) breaksOff(where string) bool {
	if !c.fails() {
		return false
	}
	c.count(where)
	if c.n(3) == 0 {
		c.hang()
	}
	return true
}

func (c *simSession) handle(m simMessage) bool {
	if c.copying {
		return c.handleCopy(m)
	}
	switch m.kind {
	case 'X':
		return false
	case 'Q':
		c.pause()
		if c.breaksOff("before a simple query") {
			return false
		}
		ok := c.run1(cstring(m.body), nil, nil, true)
		c.skip = false
		if c.copying {
			return ok && c.flush()
		}
		return ok && c.sync()
	case 'S':
		c.skip = false
		return c.sync()
	case 'H':
		return c.flush()
	}
	if c.skip {
		return true
	}
	return c.extended(m)
}

// sync ends an implicit transaction and answers.
func (c *simSession) sync() bool {
	if c.tx == 'I' {
		if why := c.store(); why != "" {
			c.send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: why, Message: "conflict"})
		}
	}
	if c.breaksOff("after the effect") {
		return false
	}
	c.send(&pgproto3.ReadyForQuery{TxStatus: c.tx})
	return c.flush()
}

// store stores what is pending, or says why not.
func (c *simSession) store() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.pending, c.seen = nil, nil }()
	for k, v := range c.seen {
		if c.versions[k] != v {
			c.counts["conflict"]++
			return "OC000"
		}
	}
	for k := range c.seen {
		c.versions[k]++
	}
	for _, id := range c.pending {
		c.stored[id]++
	}
	return ""
}

func (c *simSession) error(e simError) bool {
	severity := "ERROR"
	if e.fatal {
		severity = "FATAL"
	}
	c.send(&pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: e.code, Message: "simulated"})
	if c.tx == 'T' {
		c.tx = 'E'
	}
	c.pending, c.seen = nil, nil
	c.skip = true
	if e.fatal {
		c.flush()
	}
	return !e.fatal
}

func (c *simSession) extended(m simMessage) bool {
	switch m.kind {
	case 'P':
		var p pgproto3.Parse
		_ = p.Decode(m.body)
		if c.breaksOff("before Parse") {
			return false
		}
		c.pause()
		if c.fails() {
			return c.error(c.someError())
		}
		if _, known := planOf(p.Query); !known {
			c.fail("not known here: " + p.Query)
			return c.error(simError{code: "42601"})
		}
		if c.tx == 'E' {
			return c.error(simError{code: "25P02"})
		}
		c.prepared[p.Name] = p.Query
		c.send(&pgproto3.ParseComplete{})
	case 'B':
		var b pgproto3.Bind
		_ = b.Decode(m.body)
		query, known := c.prepared[b.PreparedStatement]
		if !known {
			return c.error(simError{code: "26000"})
		}
		if c.tx == 'E' {
			return c.error(simError{code: "25P02"})
		}
		plan, _ := planOf(query)
		c.portal, c.args, c.formats = query, nil, slices.Clone(b.ResultFormatCodes)
		for i, p := range b.Parameters {
			binaryFormat := len(b.ParameterFormatCodes) == 1 && b.ParameterFormatCodes[0] == 1 || len(b.ParameterFormatCodes) > i && b.ParameterFormatCodes[i] == 1
			c.args = append(c.args, decodeArg(p, plan.params[i], binaryFormat))
		}
		c.send(&pgproto3.BindComplete{})
	case 'D':
		var d pgproto3.Describe
		_ = d.Decode(m.body)
		query := c.portal
		if d.ObjectType == 'S' {
			query = c.prepared[d.Name]
			plan, _ := planOf(query)
			c.send(&pgproto3.ParameterDescription{ParameterOIDs: plan.params})
		}
		c.describe(query, d.ObjectType == 'P')
	case 'E':
		if c.breaksOff("before Execute") {
			return false
		}
		return c.run1(c.portal, c.args, c.formats, false)
	case 'C':
		var cl pgproto3.Close
		_ = cl.Decode(m.body)
		delete(c.prepared, cl.Name)
		c.send(&pgproto3.CloseComplete{})
	}
	return true
}

func (c *simSession) describe(query string, portal bool) {
	plan, _ := planOf(query)
	if plan.column == 0 {
		c.send(&pgproto3.NoData{})
		return
	}
	var format int16
	if portal && len(c.formats) > 0 {
		format = c.formats[0]
	}
	c.send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("n"), DataTypeOID: plan.column, DataTypeSize: 4, TypeModifier: -1, Format: format}}})
}

func (c *simSession) someError() simError {
	codes := []string{"40001", "OC000", "OC001", "XX000", "53000", "42501", "54000"}
	c.count("error")
	if c.n(4) == 0 {
		return simError{[]string{"57P01", "XX000", "08006"}[c.n(3)], true}
	}
	return simError{code: codes[c.n(len(codes))]}
}

// run1 runs one statement.
func (c *simSession) run1(query string, args []string, formats []int16, simple bool) bool {
	select {
	case <-c.canceled: // late: it may hit the next, or nothing
		if c.n(2) == 0 {
			c.count("late cancel hit")
			return c.error(simError{code: "57014"})
		}
	default:
	}
	plan, known := planOf(query)
	if !known {
		c.fail("not known here: " + query)
		return c.error(simError{code: "42601"})
	}
	if c.fails() {
		return c.error(c.someError())
	}
	if c.tx != 'I' && time.Since(c.begun) > 5*time.Minute && plan.verb != "rollback" {
		return c.error(simError{code: "54000"})
	}
	if c.tx == 'E' && plan.verb != "rollback" && plan.verb != "commit" && plan.verb != "" {
		return c.error(simError{code: "25P02"})
	}
	if d := plan.sleep(args); d > 0 && c.sleep(d) {
		return c.error(simError{code: "57014"})
	}
	if simple && plan.column != 0 {
		c.describe(query, false)
	}
	format := int16(0)
	if len(formats) > 0 {
		format = formats[0]
	}
	return c.perform(plan, args, format)
}

func (c *simSession) complete(tag string) bool {
	c.send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	return true
}

func (c *simSession) perform(plan simPlan, args []string, format int16) bool {
	switch plan.verb {
	case "":
		c.send(&pgproto3.EmptyQueryResponse{})
		return true
	case "begin":
		if c.tx == 'I' {
			c.begun = time.Now()
		}
		c.tx = 'T'
	case "commit":
		return c.commit()
	case "rollback":
		c.tx, c.pending, c.seen = 'I', nil, nil
	case "insert":
		id, _ := strconv.Atoi(plan.arg(args, 0))
		c.mu.Lock()
		c.reached[id]++
		c.mu.Unlock()
		c.pending = append(c.pending, id)
		return c.complete("INSERT 0 1")
	case "touch":
		k, _ := strconv.Atoi(plan.arg(args, 0))
		if c.seen == nil {
			c.seen = map[int]int{}
		}
		c.mu.Lock()
		if _, has := c.seen[k]; !has {
			c.seen[k] = c.versions[k]
		}
		c.mu.Unlock()
		return c.complete("UPDATE 1")
	case "row":
		c.row(plan.arg(args, 0), format, plan.column)
		return c.complete("SELECT 1")
	case "series":
		n, _ := strconv.Atoi(plan.literal)
		for i := range n {
			c.row(strconv.Itoa(i+1), format, plan.column)
			if len(c.out) > 8000 && (!c.flush() || c.breaksOff("within rows")) {
				return false
			}
			if i%500 == 499 && c.fails() {
				return c.error(c.someError())
			}
		}
		return c.complete("SELECT " + plan.literal)
	case "show":
		c.row(c.mem, format, plan.column)
		return c.complete("SHOW")
	case "set":
		c.mem = "77kB"
	case "reset":
		c.mem = "4MB"
	case "savepoint":
		return c.error(simError{code: "0A000"})
	case "copy":
		c.copying, c.copied = true, nil
		c.send(&pgproto3.CopyInResponse{OverallFormat: 1, ColumnFormatCodes: []uint16{1}})
		return true
	case "deallocate":
		delete(c.prepared, plan.literal)
	}
	return c.complete(strings.ToUpper(plan.verb))
}

// commit is COMMIT, with what may happen to it.
func (c *simSession) commit() bool {
	if c.tx == 'E' {
		c.tx = 'I'
		return c.complete("ROLLBACK")
	}
	if c.tx == 'I' {
		return c.complete("COMMIT") // with a warning
	}
	fault := 0
	if !c.quiet.Load() && c.n(1000) < 6*c.rate {
		fault = 1 + c.n(7)
		c.count(fmt.Sprint("commit fault ", fault))
	}
	switch fault {
	case 1:
		return false
	case 2:
		return c.hang()
	case 3:
		c.tx, c.pending, c.seen = 'I', nil, nil
		return c.error(simError{code: []string{"40001", "OC000", "OC001", "54000"}[c.n(4)]})
	case 4: // whether it is stored or not
		if c.n(2) == 0 {
			c.pending, c.seen = nil, nil
		}
		_ = c.store()
		c.tx = 'I'
		return c.error(simError{[]string{"XX000", "53000", "58030", "57P01"}[c.n(4)], c.n(2) == 0})
	case 5:
		_ = c.store()
		return c.hang()
	case 6:
		_ = c.store()
		return false
	case 7:
		c.sleep(time.Duration(c.n(int(3 * time.Second))))
	}
	why := c.store()
	c.tx = 'I'
	if why != "" {
		return c.error(simError{code: why})
	}
	return c.complete("COMMIT")
}

func (c *simSession) row(value string, format int16, oid uint32) {
	v := []byte(value)
	if format == 1 && oid == 23 {
		n, _ := strconv.Atoi(value)
		v = binary.BigEndian.AppendUint32(nil, uint32(n))
	}
	c.send(&pgproto3.DataRow{Values: [][]byte{v}})
}

func (c *simSession) handleCopy(m simMessage) bool {
	switch m.kind {
	case 'd':
		c.copied = append(c.copied, m.body...)
		if c.breaksOff("within a copy") {
			return false
		}
		return true
	case 'f':
		c.copying = false
		ok := c.error(simError{code: "22P04"}) // 57014 is for those that are cancelled here
		c.skip = false
		return ok && c.sync()
	case 'c':
		c.copying = false
		n := 0
		for at := 19; at+2 <= len(c.copied) && binary.BigEndian.Uint16(c.copied[at:]) == 1; at += 10 {
			id := int(binary.BigEndian.Uint32(c.copied[at+6:]))
			c.pending = append(c.pending, id)
			c.mu.Lock()
			c.reached[id]++
			c.mu.Unlock()
			n++
		}
		c.complete(fmt.Sprint("COPY ", n))
		return c.sync()
	case 'X':
		return false
	}
	return true
}

// A simPlan is what a statement is.
type simPlan struct {
	verb, literal string
	params        []uint32
	column        uint32 // its type; 0: no rows
	fixed         time.Duration
	sleepArg      int // -1: none
}

func (p simPlan) arg(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return p.literal
}

func (p simPlan) sleep(args []string) time.Duration {
	if p.sleepArg >= 0 && p.sleepArg < len(args) {
		f, _ := strconv.ParseFloat(args[p.sleepArg], 64)
		return time.Duration(f * float64(time.Second))
	}
	return p.fixed
}

func decodeArg(b []byte, oid uint32, binaryFormat bool) string {
	switch {
	case !binaryFormat:
		return string(b)
	case oid == 23:
		return strconv.Itoa(int(int32(binary.BigEndian.Uint32(b))))
	case oid == 701:
		return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(b)), 'g', -1, 64)
	}
	return string(b)
}

func cstring(b []byte) string { return string(bytes.TrimSuffix(b, []byte{0})) }

var (
	simInsert = regexp.MustCompile(`^insert into proved values \((?:\$1|\s*'?(\d+)'?\s*)\)$`)
	simSeries = regexp.MustCompile(`^select generate_series\(1, (\d+)\)$`)
	simSleep  = regexp.MustCompile(`^select pg_sleep\(([0-9.]+)\)$`)
	simFirst  = regexp.MustCompile(`^[a-z]*`)
)

// planOf understands a statement.
func planOf(query string) (p simPlan, known bool) {
	q := strings.ToLower(strings.TrimSpace(strings.TrimSuffix(query, "\n-- prepared")))
	q = strings.TrimSuffix(q, ";")
	const int4, float8, text = 23, 701, 25
	p.sleepArg = -1
	first := simFirst.FindString(q)
	switch {
	case q == "" || q == "-- ping":
	case first == "begin" || first == "commit" || first == "savepoint" || first == "set" || first == "reset" || first == "copy":
		p.verb = first
	case strings.HasPrefix(q, "rollback to") || first == "release":
		p.verb = "savepoint"
	case first == "rollback":
		p.verb = first
	case first == "deallocate":
		p.verb, p.literal = first, strings.Trim(strings.TrimPrefix(q, "deallocate "), `"`)
	case simInsert.MatchString(q):
		p.verb, p.literal = "insert", simInsert.FindStringSubmatch(q)[1]
		if p.literal == "" {
			p.params = []uint32{int4}
		}
	case q == "insert into proved select $1 from pg_sleep($2)":
		p.verb, p.params, p.sleepArg = "insert", []uint32{int4, float8}, 1
	case q == "update keys set n = n + 1 where k = $1":
		p.verb, p.params = "touch", []uint32{int4}
	case q == "select $1::int from pg_sleep($2)":
		p.verb, p.params, p.sleepArg, p.column = "row", []uint32{int4, float8}, 1, int4
	case q == "select $1::int":
		p.verb, p.params, p.column = "row", []uint32{int4}, int4
	case q == "select $1::text":
		p.verb, p.params, p.column = "row", []uint32{text}, text
	case q == "select 1":
		p.verb, p.literal, p.column = "row", "1", int4
	case q == `select "id" from "proved"`:
		p.verb, p.literal, p.column = "series", "0", int4
	case simSeries.MatchString(q):
		p.verb, p.literal, p.column = "series", simSeries.FindStringSubmatch(q)[1], int4
	case simSleep.MatchString(q):
		f, _ := strconv.ParseFloat(simSleep.FindStringSubmatch(q)[1], 64)
		p.verb, p.literal, p.column, p.fixed = "row", "", text, time.Duration(f*float64(time.Second))
	case q == "show work_mem":
		p.verb, p.column = "show", text
	default:
		return p, false
	}
	return p, true
}
