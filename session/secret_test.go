package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// shown is all that printing err and each error of its tree shows.
func shown(err error) string {
	if err == nil {
		return ""
	}
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%d"} {
		fmt.Fprintf(&b, verb+"\n", err)
	}
	if text, failed := json.Marshal(err); failed == nil {
		b.Write(text)
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() error }:
		b.WriteString(shown(e.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			b.WriteString(shown(one))
		}
	}
	return b.String()
}

// Statements with random secrets are refused in words that repeat random parts of
// them. Neither Close nor the observer nor the reason to discard shows a part.
func TestARefusedResetShowsNoSecret(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		first, second := fmt.Sprintf("Zq%06xK", rnd.Uint32()&0xffffff), fmt.Sprintf("Yw%06xJ", rnd.Uint32()&0xffffff)
		secret := first + []string{"", " ", "-", "''"}[rnd.IntN(4)] + second
		format := []string{"SET s3_secret_access_key = '%s'", "SET SESSION s3_secret_access_key TO '%s'", "set s3_secret_access_key='%s'", "/* %s */ SET a = 1", "CALL login('me', '%s')"}[rnd.IntN(5)]
		sql := fmt.Sprintf(format, secret)
		says := []string{sql, "LINE 1: " + sql[:len(sql)-rnd.IntN(10)] + "...", strings.ToUpper(sql), "no " + first, "near \"" + second[:5]}[rnd.IntN(5)]
		refusal := &backend.Error{Op: "Update", Stage: backend.StageExecute, Fault: backend.FaultStatement, SQLState: "42601", Err: status.Error(codes.InvalidArgument, says)}
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.fail = map[string]error{sql: refusal}
			r := stateRig(t, c)
			r.policy.OnReturn = ResetSQL("RESET ALL", sql)
			var told error
			r.policy.Observe.Reset = func(_ time.Duration, err error) { told = err }
			_, err := r.handle.Update(t.Context(), "SET threads = 3")
			must(t, err)
			err = r.handle.Close()
			require.ErrorContains(t, err, "session could not be made clean: statement 2 of ResetSQL: ")
			if strings.HasPrefix(sql, "SET s3") {
				require.ErrorContains(t, err, "SET s3_secret_access_key: Update: execute [42601]: InvalidArgument")
			}
			require.Equal(t, backend.FaultStatement, backend.FaultIn(err))
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			text := strings.ToLower(shown(err) + shown(told) + shown(r.discarded()))
			for _, part := range []string{first[:5], first[4:], second[:5], second[4:]} {
				require.NotContains(t, text, strings.ToLower(part), sql)
			}
		})
	}
}

// A value that a setting is put back to may be a secret, and so may an option's.
func TestARestoredValueIsNotShown(t *testing.T) {
	sql := "SET s3_secret_access_key = 'hunter2'"
	err := withoutText(&backend.Error{Err: errors.Join(backend.ErrSessionLost, errors.New("near hunt"))})
	require.NotContains(t, shown(err), "hunt")
	require.ErrorIs(t, err, backend.ErrSessionLost)
	require.NotContains(t, shown(withoutText(errors.New("bad ab"))), "ab\n")
	require.NoError(t, withoutText(nil))
	for text, want := range map[string]string{
		sql: "SET s3_secret_access_key", "set session a.b to 'x'": "set session a.b", "RESET ALL": "RESET ALL", "SELECT 'x'": "SELECT", "'x'": "statement",
		"": "statement", "LOGIN hunter2": "LOGIN", "SET": "SET", " SET\tx = 1": " SET\tx", `SET "x" = 1`: "SET", "pragma key='x'": "pragma key",
	} {
		require.Equal(t, want, statementHead(text), text)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.settings["zone"] = "hunter2"
		c.fail = map[string]error{"RESET SESSION zone": sqlError("no"), "SET SESSION zone = 'hunter2'": sqlError("near hunter")}
		r := stateRig(t, c)
		_, err := r.handle.Update(t.Context(), "SET SESSION zone = 'UTC+1'")
		must(t, err)
		err = r.handle.Close()
		require.ErrorContains(t, err, "SET SESSION zone: : execute: Internal")
		require.NotContains(t, shown(err)+shown(r.discarded()), "hunt")
	})
}
