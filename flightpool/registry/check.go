package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// check resolves a definition, finds its kind and asks it about the rest.
func (r *Registry) check(ctx context.Context, d ServerDefinition) (*ServerDefinition, error) {
	kind, known := r.kind(d.Kind)
	d.Kind = kind
	resolved, err := d.resolve()
	switch {
	case known:
		if faults := r.invalid(ctx, &resolved, r.kinds[kind].Validate); faults != nil {
			err = errjoin.Join(err, &DefinitionError{Server: d.Name, Err: faults})
		}
	case d.Kind != "":
		err = errjoin.Join(err, &DefinitionError{Server: d.Name, Err: fmt.Errorf("Kind: %q is unknown; known are %v", d.Kind, slices.Sorted(maps.Keys(r.kinds)))})
	}
	return &resolved, err
}

// invalid asks a kind about what the server's options say, and about what they say
// with each mapping's.
func (r *Registry) invalid(ctx context.Context, d *ServerDefinition, validate func(Reach) error) error {
	if validate == nil {
		return nil
	}
	ctx, cancel := forKind(ctx, max(d.ConnectTimeout, time.Second))
	defer cancel()
	_, err := called(ctx, &r.asks, func() (struct{}, error) { return struct{}{}, d.validated(validate) }, nil)
	return err
}

func (d *ServerDefinition) validated(validate func(Reach) error) error {
	if err := validate(d.reach(d.fixedFor(UserMapping{}, false))); err != nil {
		return err
	}
	var faults []error
	for _, user := range slices.Sorted(maps.Keys(d.Users)) {
		if err := validate(d.reach(d.fixedFor(d.Users[user], false))); err != nil {
			faults = append(faults, fmt.Errorf("user %q: %w", user, err))
		}
	}
	return errjoin.Join(faults...)
}

// changing waits for those who change servers, and for Kinds that are asked.
func (r *Registry) changing(ctx context.Context) error {
	late, cancel := lenient(ctx)
	defer cancel()
	late, stop := context.WithTimeout(late, forcedTime)
	defer stop()
	if left := r.turns.all.wait(late) + r.asks.wait(late); left > 0 {
		return fmt.Errorf("registry: Close: %d changes of definitions, or calls of Kinds for them, have not returned", left)
	}
	return nil
}
