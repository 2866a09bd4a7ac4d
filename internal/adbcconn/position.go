package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// position is how far a result was given out: so many batches of an endpoint, and all those
// of the endpoints before it.
type position struct {
	endpoint int
	batches  int64
}

// advance is for a batch that the driver's reader gives out. It fails for one that does not
// follow the batch before it: the reader goes on with the endpoints behind one that has
// failed, to tell so at the end. Of several endpoints it may then pass over batches of the
// others, too: those that it had been given when it gave up, for whatever reason (readerFailure).
func (k *call) advance(p *position) error {
	if cause := k.rpcErr.Load(); cause != nil && len(k.endpoints) > 1 {
		return *cause
	}
	if cause := k.readerFailure(); cause != nil {
		return cause
	}
	for p.endpoint < len(k.endpoints) && p.batches == k.endpoints[p.endpoint].batches.Load() { // it is of a later endpoint
		if !k.endpoints[p.endpoint].ended.Load() {
			return k.errStoppedBefore(p.endpoint)
		}
		*p = position{endpoint: p.endpoint + 1}
	}
	p.batches++
	return nil
}

// readerFailure is what the driver's reader of several endpoints has failed with itself, such as a schema that
// is not that of the others, or has been cut by. The context of its streams ends with it, and the reader leaves
// what they have been given since. That context ends too when all have been read, and nothing was left then.
func (k *call) readerFailure() error {
	ctx := k.readerCtx.Load()
	if ctx == nil {
		return nil
	}
	cause := context.Cause(*ctx)
	if errors.Is(cause, context.Canceled) && k.unended() < 0 {
		return nil
	}
	return cause
}

// endGivenUp ends the RPCs of a result that the driver's reader has given up, as it does where one of several
// endpoints has failed. The reader waits for the goroutines that read the others, and these wait for the server: one
// may be late, and where the session runs one statement at a time, those behind what nobody reads have no turn.
func (k *call) endGivenUp() {
	if k.external.Context().Err() == nil && k.unended() >= 0 {
		k.givenUp.Store(true)
		k.external.End()
	}
}

// unended is the first endpoint that the server has not ended with the status OK, or -1.
func (k *call) unended() int {
	return slices.IndexFunc(k.endpoints, func(e *endpoint) bool { return !e.ended.Load() })
}

// errStoppedBefore says that the driver's reader left an endpoint without an error.
func (k *call) errStoppedBefore(endpoint int) error {
	return fmt.Errorf("malformed reply: the driver stopped reading before endpoint %d of %d had ended", endpoint+1, len(k.endpoints))
}
