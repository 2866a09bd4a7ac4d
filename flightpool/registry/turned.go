package registry

// healthChanged acts on a server that turned.
func (s *server) healthChanged(down *UnhealthyError) {
	s.share.Gate(func() bool { return s.health.down.Load() != nil })
	if down != nil {
		for _, u := range *s.users.Load() {
			u.gen.Load().replace() // what was open before tells nothing of the server any more
		}
		s.failWaiters(down)
	}
	s.notices.tell(s.registry.cfg.Logger, func() { s.announce(down) })
	s.registry.wakeKeeper()
}

// announce tells the owner that the server turned.
func (s *server) announce(down *UnhealthyError) {
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
