package registry

// onHealthTransition acts on a server that turned healthy or unhealthy. Health calls it
// for one turn after the other. The order matters: first nothing new is opened, then
// what is open is replaced, then those who wait are failed.
func (s *server) onHealthTransition(down *UnhealthyError) {
	s.allocator.Gate(func() bool { return s.health.down.Load() != nil })
	if down != nil {
		for _, u := range *s.users.Load() {
			u.version.Load().markAllStale() // what was open before tells nothing of the server any more
		}
		s.failWaiters(down)
	}
	s.notices.enqueue(s.registry.cfg.Logger, func() { s.notifyOwner(down) })
	s.registry.wakeMaintenance()
}

// notifyOwner calls Config.Health for the transition.
func (s *server) notifyOwner(down *UnhealthyError) {
	cfg := s.registry.cfg
	if log := cfg.Logger; log != nil {
		if down != nil {
			log.Error("registry: a server is unhealthy", "server", s.name, "reason", down.Reason)
		} else {
			log.Info("registry: a server is healthy again", "server", s.name)
		}
	}
	if f := cfg.Health; f != nil {
		f(s.name, down)
	}
}
