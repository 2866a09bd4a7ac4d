package option

import "strings"

// Translated are the faults that another configuration has found in values of an owner, each
// with the name that the owner has for its field: those in names, else the same. They begin
// with prefix there. What the owner has already told of a field is left out.
func Translated(err error, prefix string, names map[string]string, told []error) (faults []error) {
	if err == nil {
		return nil
	}
	parts := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		parts = several.Unwrap()
	}
	known := map[string]bool{}
	for _, t := range told {
		if t != nil {
			name, _, _ := strings.Cut(t.Error(), ":")
			known[name] = true
		}
	}
	for _, part := range parts {
		name, rest, _ := strings.Cut(strings.TrimPrefix(part.Error(), prefix), ":")
		if own, ok := names[name]; ok {
			name = own
		}
		if !known[name] {
			faults = append(faults, &translated{name + ":" + rest, part})
		}
	}
	return faults
}

type translated struct {
	text string
	err  error
}

func (t *translated) Error() string { return t.text }
func (t *translated) Unwrap() error { return t.err }
