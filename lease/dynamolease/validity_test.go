package dynamolease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What a process believes of its leases must end before others free them. The
// storms show it too, but only about one in 25.
func TestAProcessBelievesForLessLongThanOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		l, _ := join(t, db, Config{Limit: 5})
		l.mu.Lock()
		session, rvn := l.book.session, l.book.rvn
		l.mu.Unlock()
		sent := time.Now()
		time.Sleep(time.Second) // the reply's way
		l.change(func() { l.prolong(session, rvn, sent) })
		l.mu.Lock()
		until := l.book.validUntil
		l.mu.Unlock()
		require.False(t, until.After(sent.Add(l.validity)), "the validity counts from the sending")

		db.mu.Lock()
		promised := db.items[sessionKey(l.cfg.Budget, session)]["ms"]
		db.mu.Unlock()
		require.Equal(t, number((l.validity + l.cfg.Grace).Milliseconds()), promised, "others wait for the grace too")
		require.NoError(t, l.Close(t.Context()))
	})
}
