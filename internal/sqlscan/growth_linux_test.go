package sqlscan

import (
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// pieces are what texts whose work may grow faster than their length are made of.
var pieces = []string{
	"(", ")", "[", "]", "{", "'", `"`, "`", "$", "$a$", "$a", "/*", "*/", "/*!", "--", "#", "\r", "\n", ";", ",", ".", "=", ":=", "@v", "a", "1", "'x'", "é",
	"SELECT ", "(SELECT ", "DELETE FROM ", "(DELETE FROM ", "INSERT INTO a ", "(INSERT INTO ", "WITH ", "(WITH a AS (", "AS (", "SELECT 1) ",
	"EXPLAIN ANALYZE ", "PREPARE a AS ", "PIVOT ", "(PIVOT a ", " ON ", " IN (", " USING ", "SET a = ", "RESET ", "PRAGMA ", "CALL ", "EXECUTE ", "CREATE TEMP TABLE ",
	"COPY ", " FROM ", " INTO ", " RETURNING ", " FORMAT ", "query(", "query('", "nextval(", "f(", "a, ",
}

// TestWorkGrowsWithTheLength repeats pieces: 32 times the text takes about 32 times as
// long. Work that grows with the square takes 1,000 times as long.
func TestWorkGrowsWithTheLength(t *testing.T) {
	for _, unit := range []string{"(DELETE FROM a ", "(INSERT INTO a SELECT ", "(PIVOT a ", "PIVOT a ", "query(a, ", "->> COMMIT ", "->> SELECT 1 ", "->> UPDATE a.", "->> comment x ", "(WITH a AS (SELECT 1) SELECT "} {
		checkGrowth(t, "SELECT ", unit, "")
	}
	checkGrowth(t, "SELECT ", "[", "]")
	texts := 10
	if os.Getenv("STRESS") != "" {
		texts = 1000
	}
	for seed := range uint64(texts) {
		r := rand.New(rand.NewPCG(seed, 0))
		piece := func() string { return pieces[r.IntN(len(pieces))] }
		var unit strings.Builder
		for range 1 + r.IntN(4) {
			unit.WriteString(piece())
		}
		checkGrowth(t, piece(), unit.String(), piece())
	}
}

func checkGrowth(t *testing.T, head, unit, tail string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	takesOnce := func(repeats int) time.Duration {
		text := head + strings.Repeat(unit, repeats) + tail
		least := time.Duration(math.MaxInt64)
		for range 2 {
			began := threadTime(t)
			judge(text)
			Summary(text)
			least = min(least, threadTime(t)-began)
		}
		return least
	}
	// A quote is closed by every second one: only one of the two is read in every dialect.
	takes := func(size int) time.Duration {
		return max(takesOnce(size/len(unit)), takesOnce(size/len(unit)+1))
	}
	if short, long := takes(2_000), takes(64_000); long > 300*short {
		t.Errorf("%q, many of %q, %q: 2 kB take %v, 64 kB %v", head, unit, tail, short, long)
	}
}

// threadTime is the processor's time that this thread has had: what else runs on the
// machine is not in it.
func threadTime(t *testing.T) time.Duration {
	const clockThreadCPUTime = 3
	var now syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&now)), 0) //nolint:gosec // its only use is this call
	require.Zero(t, errno)
	return time.Duration(now.Nano())
}
