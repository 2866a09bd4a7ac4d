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

// isPermanent tells a wrong setting from a passing fault.
func isPermanent(err error) bool {
	var wrong interface{ Permanent() bool }
	return errors.As(err, &wrong) && wrong.Permanent()
}

var (
	errOverrun = errors.New("the process was taken for dead, its leases went to others, and the budget is overrun")
	errLapsed  = errors.New("the leases' validity has lapsed")
)
