package dsqlgate

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

const maxMessage = 1 << 30

// readMessage reads a message with a type. body may use buf's memory.
func readMessage(r *bufio.Reader, buf []byte, limit int) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(head[1:])) - 4
	if size < 0 || size > limit {
		return 0, nil, fmt.Errorf("dsqlgate: message of %d bytes", size)
	}
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	body = buf[:size]
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

func writeMessage(w *bufio.Writer, kind byte, body []byte) error {
	head := binary.BigEndian.AppendUint32(append(w.AvailableBuffer(), kind), uint32(len(body)+4))
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

func appendMessage(b []byte, kind byte, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, kind), uint32(len(body)+4))
	return append(b, body...)
}

// upstream passes the client's messages on.
func (s *session) upstream() {
	out := bufio.NewWriter(s.server)
	var buf []byte
	for {
		kind, body, err := readMessage(s.in, buf, maxMessage)
		if !s.waitUnfrozen() || err != nil {
			return
		}
		buf = body
		if err := writeMessage(out, kind, s.rewriteRequest(kind, body)); err != nil {
			return
		}
		if s.in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// downstream passes the server's messages back.
func (s *session) downstream() {
	in, out := bufio.NewReaderSize(s.server, 16<<10), bufio.NewWriter(s.client)
	var buf []byte
	for {
		kind, body, err := readMessage(in, buf, maxMessage)
		if !s.waitUnfrozen() || err != nil {
			return
		}
		buf = body
		kind, body, end := s.rewriteAnswer(kind, body)
		if kind != 0 {
			if err := writeMessage(out, kind, body); err != nil {
				return
			}
		}
		if (end || in.Buffered() == 0) && out.Flush() != nil {
			return
		}
		if end {
			return
		}
	}
}

// rewriteRequest looks at a message of the client and returns the body to send on.
func (s *session) rewriteRequest(kind byte, body []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case 'Q':
		u := s.currentRequest()
		u.open = false
		sql := s.rewriteStatement(u, text(body))
		u.dropAtAnswer = u.dropAtAnswer || s.gate.takeDropAtAnswer()
		return append([]byte(sql), 0)
	case 'P':
		name, rest, _ := strings.Cut(string(body), "\x00")
		sql, types, _ := strings.Cut(rest, "\x00")
		return []byte(name + "\x00" + s.rewriteStatement(s.currentRequest(), sql) + "\x00" + types)
	case 'S':
		s.currentRequest().open = false
	case 'B', 'C', 'D', 'E', 'F', 'H':
		s.currentRequest()
	}
	return body
}

func text(body []byte) string { return strings.TrimSuffix(string(body), "\x00") }

// currentRequest is the one that the client is sending. The caller holds mu.
func (s *session) currentRequest() *request {
	if n := len(s.requests); n > 0 && s.requests[n-1].open {
		return s.requests[n-1]
	}
	u := &request{open: true}
	s.requests = append(s.requests, u)
	return u
}

// rewriteStatement returns the statement to send instead of sql, and marks the request
// when its answer is to be replaced. The caller holds mu.
func (s *session) rewriteStatement(u *request, sql string) string {
	if u.replacement != nil {
		return sql // what came before fails, and this with it
	}
	if s.gate.takeHeldCancel() {
		u.replacement = statementError("57014", "canceling statement due to user request")
		return "select dsqlgate_refuses_this()"
	}
	commit := isCommit(sql)
	if u.replacement = s.tx.refusalOf(sql, s.gate.opts, time.Now()); u.replacement == nil && commit && s.tx.status == 'T' {
		if code, fails := s.gate.takeCommitFault(); fails {
			u.replacement = conflict(code)
		}
		u.dropAtAnswer = u.replacement == nil && s.gate.takeDropAtCommit()
	}
	switch {
	case u.replacement == nil:
		return sql
	case commit:
		return "rollback"
	default:
		return "select dsqlgate_refuses_this()" // fails, and the transaction with it
	}
}

// rewriteAnswer looks at a message of the server and returns the one to pass on, none
// when kind is 0. end says that the session ends with it.
func (s *session) rewriteAnswer(kind byte, body []byte) (byte, []byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var u *request
	if len(s.requests) > 0 {
		u = s.requests[0]
	}
	switch kind {
	case 'E', 'C':
		if kind == 'C' {
			s.tx.countRows(text(body))
		}
		if u != nil && u.dropAtAnswer && kind == 'C' {
			return 0, nil, true
		}
		if u != nil && u.replacement != nil {
			replacement := u.replacement
			u.replacement = nil
			return 'E', messageBody(replacement), false
		}
		if kind == 'E' {
			return 'E', toDSQLError(body), false
		}
	case 'Z':
		if u != nil {
			s.requests = s.requests[1:]
		}
		s.tx.onReady(body[0], time.Now())
		if s.limitReached && s.isIdle() {
			s.gate.count("expired")
			return kind, body, true
		}
	}
	return kind, body, false
}

// conflict is the error of a transaction that lost.
func conflict(code string) *pgproto3.ErrorResponse {
	message := "mutation conflicts with another transaction, retry as needed (OC000)"
	if code == "OC001" {
		message = "schema has been updated by another transaction, please retry: (OC001)"
	}
	return &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "40001", Message: message}
}

// toDSQLError gives PostgreSQL's serialization failures DSQL's words.
func toDSQLError(body []byte) []byte {
	var e pgproto3.ErrorResponse
	if e.Decode(body) != nil || e.Code != "40001" {
		return body
	}
	return messageBody(conflict("OC000"))
}

// messageBody is a message's body.
func messageBody(e *pgproto3.ErrorResponse) []byte {
	out, err := e.Encode(nil)
	if err != nil {
		panic(err) // our own few words cannot be too long
	}
	return out[5:]
}
