package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// resolveAndValidate resolves a definition, finds its kind and asks it about the rest.
// An error tells all faults at once, those of the kind as well.
func (r *Registry) resolveAndValidate(ctx context.Context, d ServerDefinition) (*ServerDefinition, error) {
	kind, known := r.resolveKind(d.Kind)
	d.Kind = kind
	resolved, err := d.resolve()
	switch {
	case known:
		if faults := r.validateByKind(ctx, &resolved, r.kinds[kind], err == nil); faults != nil {
			err = errjoin.Join(err, &DefinitionError{Server: d.Name, Err: faults})
		}
	case d.Kind != "":
		err = errjoin.Join(err, &DefinitionError{Server: d.Name, Err: fmt.Errorf("Kind: %q is unknown; known are %v", d.Kind, slices.Sorted(maps.Keys(r.kinds)))})
	}
	return &resolved, err
}

// validateByKind asks a kind about what the server's options say, and about what they
// say with each mapping's. sound says that the definition has no fault of its own. A
// Kind may hang here as anywhere: it has OpenTimeout, and a second at least.
func (r *Registry) validateByKind(ctx context.Context, d *ServerDefinition, k Kind, sound bool) error {
	if k.Validate == nil {
		return nil
	}
	var cfg flightpool.Config
	if k.Flight != nil && sound {
		cfg = flightConfig(d)
	}
	validate := func(m UserMapping) error {
		params := d.connectParams(d.connKeyFor(m, false))
		params.Config = cfg
		return k.Validate(params)
	}
	ctx, cancel := withKindTimeout(ctx, max(d.OpenTimeout, time.Second))
	defer cancel()
	_, err := callKind(ctx, &r.kindCalls, func() (struct{}, error) { return struct{}{}, d.validateWith(validate) }, nil)
	return err
}

// validateWith asks first about the options alone: what is wrong there is told once,
// and not for each user.
func (d *ServerDefinition) validateWith(validate func(UserMapping) error) error {
	if err := validate(UserMapping{}); err != nil {
		return err
	}
	var faults []error
	for _, user := range slices.Sorted(maps.Keys(d.Users)) {
		if err := validate(d.Users[user]); err != nil {
			faults = append(faults, fmt.Errorf("user %q: %w", user, err))
		}
	}
	return errjoin.Join(faults...)
}

// awaitChanges waits for changes of servers under way, and for Kinds that are asked. An
// Update whose Kind hangs keeps Close for closeGrace at most.
func (r *Registry) awaitChanges(ctx context.Context) error {
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer stop()
	changes, calls := r.changeLocks.changes.Wait(late), r.kindCalls.Wait(late)
	if changes+calls == 0 {
		return nil
	}
	return &DrainError{Err: fmt.Errorf("%d changes of definitions and %d calls of Kinds for them have not returned", changes, calls)}
}

// closeGrace is how long the end of a server waits, after its context has ended,
// for what it has then cancelled.
const closeGrace = 5 * time.Second

// withCloseGrace ends closeGrace after ctx. The function it returns must be called; it
// stops the timer.
func withCloseGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { // on a goroutine of its own
		_ = callback.EndsWithin(late.Done(), closeGrace)
		cancel()
	})
	return late, func() { stop(); cancel() }
}
