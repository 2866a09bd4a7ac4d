package testserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/status"
)

// tickets are those made and not yet redeemed, of all sessions: a ticket may
// come back over another connection.
type tickets struct {
	srv  *Server
	mu   sync.Mutex
	byID map[string]*ticket
}

// ticket is a result that waits to be fetched.
type ticket struct {
	id   string
	sess *session
	stmt Statement
	bind []arrow.RecordBatch // parameters, owned

	hasResult  bool                  // parts are the result: there is nothing to run
	schema     *arrow.Schema         // of parts
	parts      [][]arrow.RecordBatch // one for each endpoint; nil once redeemed
	unredeemed int                   // endpoints not yet redeemed
}

// roamingPrefix begins the handle of a ticket that carries its statement.
const roamingPrefix = "sql\x00"

// put keeps a ticket and returns the handle of each of its endpoints, or, where its session is ending, releases it.
func (t *tickets) put(ctx context.Context, k *ticket) ([][]byte, error) {
	k.id, k.unredeemed = rand.Text(), len(k.parts)
	t.mu.Lock()
	ending := k.sess.isEnding() // looked at under the lock: see session.addPrepared
	if !ending {
		t.byID[k.id] = k
	}
	t.mu.Unlock()
	if ending {
		k.release()
		return nil, t.srv.statusOf(ctx, errSessionClosed)
	}
	t.srv.ledger.update(func(now *Snapshot) { now.Tickets++ })
	handles := make([][]byte, len(k.parts))
	for i := range handles {
		handles[i] = fmt.Appendf(nil, "%s/%d", k.id, i)
	}
	return handles, nil
}

// redeem takes one endpoint of a ticket, and what there is of its result. The
// caller releases both.
func (t *tickets) redeem(handle []byte) (*ticket, []arrow.RecordBatch, error) {
	id, index, _ := strings.Cut(string(handle), "/")
	i, err := strconv.Atoi(index)
	t.mu.Lock()
	k := t.byID[id]
	if k == nil || err != nil || i < 0 || i >= len(k.parts) || k.parts[i] == nil {
		t.mu.Unlock()
		return nil, nil, status.Error(t.srv.profile.TicketCode, "ticket is unknown, redeemed or expired")
	}
	part := k.parts[i]
	k.parts[i] = nil
	k.unredeemed--
	last := k.unredeemed == 0
	if last {
		delete(t.byID, id)
	}
	t.mu.Unlock()
	if last {
		t.srv.ledger.update(func(now *Snapshot) { now.Tickets-- })
	}
	return k, part, nil
}

// drop forgets a ticket that was not redeemed and reports whether there was.
func (t *tickets) drop(id string) bool {
	t.mu.Lock()
	k := t.byID[id]
	delete(t.byID, id)
	t.mu.Unlock()
	if k == nil {
		return false
	}
	k.release()
	t.srv.ledger.update(func(now *Snapshot) { now.Tickets-- })
	return true
}

// dropSession forgets the tickets of a session, or of all if it is nil.
func (t *tickets) dropSession(sess *session) {
	var ids []string
	t.mu.Lock()
	for id, k := range t.byID {
		if sess == nil || k.sess == sess {
			ids = append(ids, id)
		}
	}
	t.mu.Unlock()
	for _, id := range ids {
		t.drop(id)
	}
}

func (t *tickets) sqlOf(handle []byte) string {
	if st, ok := parseRoamingHandle(handle); ok {
		return st.SQL
	}
	id, _, _ := strings.Cut(string(handle), "/")
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.byID[id]; k != nil {
		return k.stmt.SQL
	}
	return ""
}

func (k *ticket) release() {
	for i, p := range k.parts {
		releaseAll(p)
		k.parts[i] = nil
	}
	releaseAll(k.bind)
	k.bind = nil
}

func releaseAll(batches []arrow.RecordBatch) {
	for _, b := range batches {
		b.Release()
	}
}

// roamingHandle has the statement's kind in one byte, the length of its
// transaction in the next, then both texts.
func roamingHandle(st Statement) []byte {
	handle := append([]byte(roamingPrefix), byte(st.Kind), byte(len(st.Tx)))
	return append(append(handle, st.Tx...), st.SQL...)
}

func parseRoamingHandle(handle []byte) (st Statement, ok bool) {
	rest, ok := strings.CutPrefix(string(handle), roamingPrefix)
	if !ok || len(rest) < 2 || len(rest) < 2+int(rest[1]) || rest[0] > byte(KindUpdate) {
		return Statement{}, false
	}
	end := 2 + int(rest[1])
	return Statement{Kind: Kind(rest[0]), Tx: rest[2:end], SQL: rest[end:]}, true
}
