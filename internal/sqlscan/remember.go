package sqlscan

import (
	"hash/maphash"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/flightpool/flightpool/internal/invariant"
)

// Applications send the same few texts again and again, mostly with parameters. What the
// latest ones do is remembered: at most 256 texts of 2 KB, of all pools of the process.
const (
	rememberedTexts = 256
	longestText     = 2 << 10
)

var (
	remembered   [rememberedTexts]atomic.Pointer[judged]
	rememberSeed = maphash.MakeSeed()
)

// judged is a text and what it does. Neither changes.
type judged struct {
	sql    string
	script Script
}

// Parse judges sql: by the standard dialect, and, where another dialect cuts
// the text otherwise, by that one as well. The careful answer counts. The Script is
// shared: nobody may change it.
func Parse(sql string) Script {
	if len(sql) > longestText {
		return judge(sql)
	}
	slot := &remembered[maphash.String(rememberSeed, sql)%rememberedTexts]
	if j := slot.Load(); j != nil && j.sql == sql {
		if invariant.Enabled {
			invariant.Check(reflect.DeepEqual(j.script, judge(sql)), "the Script of %q was changed", sql)
		}
		return j.script
	}
	own := strings.Clone(sql) // which may be a piece of a large text of the caller's
	j := &judged{sql: own, script: judge(own)}
	slot.Store(j)
	return j.script
}
