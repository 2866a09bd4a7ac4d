package dsql

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func join(t *testing.T, s *quota, most, reserve int) *viewQuota {
	t.Helper()
	m, err := s.join(most, reserve)
	require.NoError(t, err)
	return m
}

func TestAReserveIsThereWhateverOthersTake(t *testing.T) {
	s := newQuota(4)
	greedy, modest := join(t, s, 0, 0), join(t, s, 2, 1)
	for i := range 4 {
		ok, err := greedy.tryAcquire()
		require.NoError(t, err)
		require.Equal(t, i < 3, ok)
	}
	ok, _ := modest.tryAcquire()
	require.True(t, ok)
	ok, _ = modest.tryAcquire()
	require.False(t, ok, "beyond its reserve it is one of many")
}

func TestReservesAndMaximaThatDoNotFitAreRefused(t *testing.T) {
	s := newQuota(4)
	join(t, s, 0, 3)
	_, err := s.join(0, 2)
	require.ErrorContains(t, err, "Reserve")
	_, err = s.join(5, 0)
	require.ErrorContains(t, err, "Max")
	_, err = s.join(1, 2)
	require.ErrorContains(t, err, "Reserve")
}

func TestWhoHasLeastIsServedFirstAndEqualsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuota(3)
		rich, poor := join(t, s, 0, 0), join(t, s, 0, 0)
		for range 3 {
			require.NoError(t, rich.acquire(t.Context()))
		}
		var order []string
		wait := func(m *viewQuota, name string) {
			go func() {
				if m.acquire(t.Context()) == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		wait(rich, "rich 1")
		wait(poor, "poor 1")
		wait(poor, "poor 2")
		for range 3 {
			rich.release()
			synctest.Wait()
		}
		require.Equal(t, []string{"poor 1", "rich 1", "poor 2"}, order)
	})
}

func TestTheLastOfAnApplicantThatLeftIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuota(1)
		m := join(t, s, 0, 0)
		require.NoError(t, m.acquire(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.acquire(ctx), context.DeadlineExceeded)
		m.release()
		ok, err := m.tryAcquire()
		require.NoError(t, err)
		require.True(t, ok)
	})
}

func TestLeavingRefusesApplicantsAndWaitsForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuota(2)
		leaving, other := join(t, s, 1, 1), join(t, s, 0, 0)
		require.NoError(t, leaving.acquire(t.Context()))
		require.NoError(t, other.acquire(t.Context()))
		var refused, granted error
		go func() { refused = leaving.acquire(t.Context()) }()
		go func() { granted = other.acquire(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, leaving.close(ctx), "1 connections are still in use")
		synctest.Wait()
		require.ErrorIs(t, refused, ErrClosed)
		leaving.release()
		synctest.Wait()
		require.NoError(t, granted)
		require.NoError(t, leaving.close(t.Context()), "again")
		_, err := leaving.tryAcquire()
		require.ErrorIs(t, err, ErrClosed)
		require.Len(t, s.members, 1)
	})
}

// Random members take, wait, give up and leave; what is in use never exceeds
// the size, and nobody waits who could be served.
func TestTheShareHoldsItsInvariantsUnderRandomUse(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := newQuota(1 + random.IntN(6))
			var members []*viewQuota
			for range 1 + random.IntN(4) {
				most := 1 + random.IntN(s.size)
				if m, err := s.join(most, random.IntN(most+1)); err == nil {
					members = append(members, m)
				}
			}
			held := 0
			for _, m := range members {
				for range 8 {
					patience, use := time.Duration(random.IntN(50))*time.Millisecond, time.Duration(random.IntN(20))*time.Millisecond
					start := time.Duration(random.IntN(60)) * time.Millisecond
					go func() {
						time.Sleep(start)
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						if m.acquire(ctx) != nil {
							return
						}
						s.mu.Lock()
						held++
						s.mu.Unlock()
						time.Sleep(use)
						s.mu.Lock()
						held--
						s.mu.Unlock()
						m.release()
					}()
				}
			}
			for range 150 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				s.mu.Lock()
				require.GreaterOrEqual(t, s.free(), 0)
				require.LessOrEqual(t, held, s.size)
				for _, m := range members {
					require.LessOrEqual(t, m.used, m.max)
					require.False(t, m.waiting.Len() > 0 && m.canGrant(), "one waits who is allowed")
				}
				s.mu.Unlock()
			}
			for _, m := range members {
				require.Zero(t, m.used)
			}
		})
	}
}
