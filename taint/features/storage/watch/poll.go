package watch

import (
	"context"
	"time"

	"github.com/forcefence/forcefence/taint/features/storage"
)

// readTime is the timeout of one read of a Source.
const readTime = 10 * time.Second

// pollSource reads the Source at its interval until ctx ends.
func (s *system) pollSource(ctx context.Context) {
	next := time.NewTicker(s.adapter.Source.Interval())
	defer next.Stop()
	for {
		s.readSource(ctx)
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// readSource reads the Source once. If it fails, everything is unknown.
func (s *system) readSource(ctx context.Context) {
	began := time.Now()
	one, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	read, err := s.adapter.Source.Read(one)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.loseAll("its API cannot be read: " + err.Error())
		return
	}
	s.changeState(func(state *storage.State) []string {
		s.staleAt = began.Add(s.maxAge())
		return state.ReplaceAll(read)
	})
	for _, k := range s.followedKinds() {
		s.reportRead(k)
	}
}

// maxAge is how old the objects of a Source may be, from when the read began. The next read has ended by then.
func (s *system) maxAge() time.Duration { return s.adapter.Source.Interval() + readTime }

// dropStale makes everything unknown that the Source read too long ago. The process may have been suspended.
func (s *system) dropStale() {
	s.mu.RLock()
	stale := s.isStale()
	s.mu.RUnlock()
	if !stale {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStale() {
		s.loseAll("its API was last read more than " + s.maxAge().String() + " ago")
	}
}

// isStale reports whether the objects of the Source are too old. The caller holds mu.
func (s *system) isStale() bool { return !s.staleAt.IsZero() && time.Now().After(s.staleAt) }

// loseAll marks every kind as unknown. The caller holds mu.
func (s *system) loseAll(why string) {
	s.staleAt = time.Time{}
	for _, k := range s.followedKinds() {
		s.setLost(k, why)
	}
}

// followedKinds returns the kinds that the adapter describes.
func (s *system) followedKinds() (out []storage.Kind) {
	for _, k := range storage.Kinds {
		if _, has := s.adapter.ResourceOf(k); has {
			out = append(out, k)
		}
	}
	return out
}
