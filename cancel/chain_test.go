package cancel

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/callback"
)

func step(name string, timeout time.Duration, out Outcome, err error, takes time.Duration, ran *[]string) Step {
	return Step{Name: name, Timeout: timeout, Do: func(ctx context.Context) (Outcome, error) {
		*ran = append(*ran, name)
		select {
		case <-time.After(takes):
			return out, err
		case <-ctx.Done():
			return Failed, ctx.Err()
		}
	}}
}

func TestStepsRunInOrderAndStopAtTheFirstConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		r := Chain{Steps: []Step{
			step("a", time.Second, Requested, nil, 10*time.Millisecond, &ran),
			step("b", time.Second, Unsupported, nil, 0, &ran),
			step("c", time.Second, Confirmed, nil, 5*time.Millisecond, &ran),
			step("d", time.Second, Confirmed, nil, 0, &ran),
		}}.Run(t.Context())
		require.Equal(t, []string{"a", "b", "c"}, ran)
		require.True(t, r.Confirmed)
		require.True(t, r.Safe())
		require.Equal(t, "c", r.ConfirmedBy)
		require.Equal(t, 15*time.Millisecond, r.Elapsed)
		require.Equal(t, []time.Duration{10 * time.Millisecond, 0, 5 * time.Millisecond},
			[]time.Duration{r.Steps[0].Elapsed, r.Steps[1].Elapsed, r.Steps[2].Elapsed})
		require.Equal(t, "confirmed by c in 15ms (a requested, b unsupported, c confirmed)", r.String())
	})
}

func TestAStepThatRunsOutOfTimeIsUnansweredAndSpoilsTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		r := Chain{Steps: []Step{
			step("slow", 50*time.Millisecond, Requested, nil, time.Hour, &ran),
			step("probe", time.Second, Confirmed, nil, 0, &ran),
		}}.Run(t.Context())
		require.Equal(t, Unanswered, r.Steps[0].Outcome)
		require.Equal(t, 50*time.Millisecond, r.Steps[0].Elapsed)
		require.ErrorIs(t, r.Steps[0].Err, context.DeadlineExceeded)
		require.True(t, r.Confirmed, "the operation did end")
		require.False(t, r.Safe(), "but a late cancel may still come")
	})
}

func TestTheBudgetBoundsTheWholeChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		r := Chain{Budget: 30 * time.Millisecond, Steps: []Step{
			step("a", 20*time.Millisecond, Requested, nil, time.Hour, &ran),
			step("b", 20*time.Millisecond, Requested, nil, time.Hour, &ran),
			step("c", 20*time.Millisecond, Confirmed, nil, 0, &ran),
		}}.Run(t.Context())
		require.Equal(t, []string{"a", "b"}, ran)
		require.False(t, r.Confirmed)
		require.False(t, r.Safe())
		require.Equal(t, 30*time.Millisecond, r.Elapsed)
		require.Contains(t, r.String(), "unconfirmed in 30ms")
	})
}

func TestTheOutsideSignConfirmsButLetsARunningStepFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		time.AfterFunc(5*time.Millisecond, func() { close(ended) })
		var ran []string
		r := Chain{Ended: ended, Steps: []Step{
			step("a", time.Second, Requested, nil, 20*time.Millisecond, &ran),
			step("b", time.Second, Requested, nil, 0, &ran),
		}}.Run(t.Context())
		require.Equal(t, []string{"a"}, ran)
		require.Equal(t, "ended", r.ConfirmedBy)
		require.Equal(t, Requested, r.Steps[0].Outcome, "the step was answered, not cut off")
		require.True(t, r.Safe())

		r = Chain{Ended: ended, Steps: []Step{step("never", time.Second, Failed, nil, 0, &ran)}}.Run(t.Context())
		require.Empty(t, r.Steps, "an operation that has ended needs no step")
		require.True(t, r.Safe())
	})
}

func TestAFailedStepGoesOnToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		var ran []string
		r := Chain{Steps: []Step{
			step("a", time.Second, Failed, boom, 0, &ran),
			step("b", time.Second, Confirmed, nil, 0, &ran),
		}}.Run(t.Context())
		require.ErrorIs(t, r.Steps[0].Err, boom)
		require.Equal(t, Failed, r.Steps[0].Outcome)
		require.True(t, r.Safe())
	})
}

func TestOnlyAFailureMayHaveBeenCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atTheEnd := func(out Outcome, err error) Outcome {
			r := Chain{Steps: []Step{{Name: "a", Timeout: time.Second, Do: func(ctx context.Context) (Outcome, error) {
				<-ctx.Done()
				return out, err
			}}}}.Run(t.Context())
			return r.Steps[0].Outcome
		}
		require.Equal(t, Unanswered, atTheEnd(Failed, context.DeadlineExceeded))
		require.Equal(t, Requested, atTheEnd(Requested, context.DeadlineExceeded), "the request was answered, what followed was not")
		require.Equal(t, Failed, atTheEnd(Failed, nil), "the server answered that it cannot")
	})
}

func TestTheContextOfAStepEndsWithIt(t *testing.T) {
	var kept context.Context
	Chain{Steps: []Step{{Do: func(ctx context.Context) (Outcome, error) {
		kept = ctx //nolint:fatcontext // to look at it afterwards
		return Confirmed, nil
	}}}}.Run(t.Context())
	require.ErrorIs(t, kept.Err(), context.Canceled)
}

func TestTheZeroChainAndAnEndedContextConfirmNothing(t *testing.T) {
	require.False(t, Chain{}.Run(t.Context()).Confirmed)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var ran []string
	r := Chain{Steps: []Step{step("a", time.Second, Confirmed, nil, 0, &ran)}}.Run(ctx)
	require.Empty(t, ran)
	require.False(t, r.Safe())
	r.Elapsed = 0
	require.Equal(t, "unconfirmed in 0s", r.String())
}

func TestAChainWaitsForTheEndUntilItsBudgetIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(endsAfter time.Duration) Report {
			ended := make(chan struct{})
			time.AfterFunc(endsAfter, func() { close(ended) })
			var ran []string
			return Chain{Ended: ended, Budget: 5 * time.Second, Steps: []Step{
				step("rpc", time.Second, Requested, nil, 0, &ran),
			}}.Run(t.Context())
		}
		r := run(10 * time.Millisecond)
		require.Equal(t, "confirmed by ended in 10ms (rpc requested)", r.String())
		require.True(t, r.Safe())
		require.Equal(t, "unconfirmed in 5s (rpc requested)", run(6*time.Second).String())
	})
}

func TestAStepOrChainWithoutATimeHasTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		r := Chain{Steps: []Step{
			step("answers", 0, Requested, nil, 10*time.Millisecond, &ran),
			step("slow", 0, Requested, nil, time.Hour, &ran),
			step("slower", time.Hour, Requested, nil, 2*time.Hour, &ran),
		}}.Run(t.Context())
		require.Equal(t, "unconfirmed in 5s (answers requested, slow unanswered, slower unanswered)", r.String())
		require.Equal(t, DefaultTimeout, r.Steps[1].Elapsed)
		require.Equal(t, DefaultBudget, r.Elapsed)

		r = Chain{Budget: math.MaxInt64, Steps: []Step{step("probe", math.MaxInt64, Confirmed, nil, time.Hour, &ran)}}.Run(t.Context())
		require.Equal(t, "confirmed by probe in 1h0m0s (probe confirmed)", r.String())
	})
}

func TestAStepThatIgnoresItsContextIsAbandonedAndUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		stuck := Step{Name: "stuck", Timeout: time.Second, Do: func(context.Context) (Outcome, error) {
			time.Sleep(time.Hour)
			return Confirmed, nil
		}}
		r := Chain{Budget: time.Second, Steps: []Step{stuck, step("next", time.Second, Confirmed, nil, 0, &ran)}}.Run(t.Context())
		require.Equal(t, "unconfirmed in 1.1s (stuck unanswered)", r.String())
		require.ErrorIs(t, r.Steps[0].Err, ErrStepStuck)
		require.ErrorIs(t, r.Steps[0].Err, context.DeadlineExceeded)
		require.Empty(t, ran, "nothing runs beside an abandoned step")
		require.False(t, r.Safe())
		time.Sleep(time.Hour) // its goroutine ends when Do returns
	})
}

func TestAStepThatPanicsOrExitsIsUnansweredAndTheNextRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		var ran []string
		r := Chain{Steps: []Step{
			{Name: "panics", Do: func(context.Context) (Outcome, error) { panic(boom) }},
			{Name: "exits", Do: func(context.Context) (Outcome, error) { runtime.Goexit(); return Confirmed, nil }},
			{Name: "empty"},
			step("probe", time.Second, Confirmed, nil, 0, &ran),
		}}.Run(t.Context())
		require.Equal(t, "confirmed by probe in 0s (panics unanswered, exits unanswered, empty unanswered, probe confirmed)", r.String())
		require.False(t, r.Safe(), "nobody knows what was sent")
		require.ErrorIs(t, r.Steps[0].Err, boom)
		var caught *PanicError
		require.ErrorAs(t, r.Steps[0].Err, &caught)
		require.Equal(t, "the step panicked: boom", caught.Error())
		require.Contains(t, string(caught.Stack), "chain_test.go")
		require.ErrorIs(t, r.Steps[1].Err, callback.ErrExited)
	})
}

func TestOutcomesHaveNames(t *testing.T) {
	for want, o := range map[string]Outcome{"failed": Failed, "unsupported": Unsupported, "requested": Requested, "confirmed": Confirmed, "unanswered": Unanswered} {
		require.Equal(t, want, o.String())
	}
}
