package fleet

import (
	"errors"
	"fmt"
)

// ConfigError is an answer of a store that no retry will change: a setting or
// a permission is wrong.
type ConfigError struct {
	Setting string // what to look at, for example "Config.Table"
	Hint    string
	Err     error
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("lease: %s: %s: %v", e.Setting, e.Hint, e.Err)
}

// Unwrap reaches the store's error.
func (e *ConfigError) Unwrap() error { return e.Err }

// Permanent is true: see Store.
func (e *ConfigError) Permanent() bool { return true }

// isPermanent tells a wrong setting from a passing fault. A passing one is the
// Fallback's matter, a wrong setting that of whoever calls New.
func isPermanent(err error) bool {
	var wrong interface{ Permanent() bool }
	return errors.As(err, &wrong) && wrong.Permanent()
}

// ErrNoBudget says that a store has no record of a budget: no process has joined
// it yet, or its name is another.
var ErrNoBudget = errors.New("the store has no budget of that name")

// ErrRecord says that the record of a budget is not as this package writes it:
// something else wrote it, or changed its shards.
var ErrRecord = errors.New("not a record of this package")

var (
	errOverrun = errors.New("the process was taken for dead, its leases went to others, and the budget is overrun")
	errLost    = errors.New("the process was taken for dead, and its leases may have gone to others")
	errLapsed  = errors.New("the leases' validity has lapsed")
)
